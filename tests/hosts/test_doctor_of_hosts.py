"""`llmhost doctor` of written hosts, as people and as programs read it."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.hosts.views import view_of
from tests.hosts.written import HOSTS, WrittenHost, looked_at, read

from llmhost.config.schema import Config
from llmhost.decide import doctor
from llmhost.decide.doctor.diagnose import COMPANIONS, diagnose, not_checked
from llmhost.views.doctor import doctor_json, doctor_text
from llmhost.views.text import columns

SHOWN = (
    "driver-library-mismatch",
    "driver-releasing",
    "fabric-not-ready",
    "incident",
    "library-upgraded",
    "no-gpu",
    "settings-that-go-wrong",
    "shm-of-a-running-engine",
    "start-pre-waits",
    "start-timeout-without-limit",
    "tenant-in-the-way",
    "two-tenants",
)


def with_companions(host: WrittenHost) -> WrittenHost:
    """Observe what the command reads beside the watched units."""
    config = host.first.get("config", {})
    units = config.get("units", {})
    patterns = [*units.get("patterns", Config().units.patterns), *(unit.name for unit in COMPANIONS)]
    watched = config | {"units": units | {"patterns": patterns}}
    return replace(host, first=host.first | {"config": watched})


def test_the_hosts_together_have_every_finding() -> None:
    known = {
        name
        for path in Path(doctor.__file__).parent.glob("*.py")
        for name in re.findall(r'(?:case\.finding\(\s*|check=)"([a-z-]+)"', path.read_text())
    }
    shown = {
        name
        for path in HOSTS.glob("*/expected/doctor.txt")
        for name in re.findall(r"\[([a-z-]+)\]$", path.read_text(), re.MULTILINE)
    }
    assert "guard" in known
    assert known - {"guard-exposed"} == shown, "the files of a recorded host are not there (tests/guard/test_line.py)"


@pytest.mark.parametrize("name", SHOWN)
def test_the_findings_on_a_written_host_are_the_expected_ones(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with looked_at(with_companions(read(name)), tmp_path) as observed:
        view = view_of(observed)
    findings, unchecked = diagnose(view), tuple(not_checked(view))
    text = doctor_text(findings, unchecked)
    expected = HOSTS / name / "expected" / "doctor.txt"
    if request.config.getoption("--update-golden"):
        expected.write_text(text)
    assert max(columns(line) for line in text.splitlines()) <= 80
    assert text == expected.read_text()
    document = json.loads(doctor_json(findings, unchecked))
    assert [finding["check"] for finding in document["findings"]] == [finding.check for finding in findings]
