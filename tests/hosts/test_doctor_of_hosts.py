"""`llmhost doctor` of written hosts, as people and as programs read it."""

import json
from pathlib import Path

import pytest
from tests.hosts.told import look_of
from tests.hosts.written import HOSTS, looked_at, read

from llmhost.decide.doctor import diagnose, not_checked
from llmhost.views.doctor import doctor_json, doctor_text
from llmhost.views.text import columns

SHOWN = (
    "driver-library-mismatch",
    "driver-releasing",
    "fabric-not-ready",
    "incident",
    "library-upgraded",
    "no-gpu",
    "shm-of-a-running-engine",
    "start-pre-waits",
    "start-timeout-without-limit",
    "tenant-in-the-way",
    "two-tenants",
)


@pytest.mark.parametrize("name", SHOWN)
def test_the_findings_on_a_written_host_are_the_expected_ones(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with looked_at(read(name), tmp_path) as seen:
        look = look_of(seen)
    findings, untold = diagnose(look), tuple(not_checked(look))
    text = doctor_text(findings, untold)
    expected = HOSTS / name / "expected" / "doctor.txt"
    if request.config.getoption("--update-golden"):
        expected.write_text(text)
    assert max(columns(line) for line in text.splitlines()) <= 80
    assert text == expected.read_text()
    told = json.loads(doctor_json(findings, untold))
    assert [one["check"] for one in told["findings"]] == [one.check for one in findings]
