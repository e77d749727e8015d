"""`llmhost status UNIT…`, and what the commands show where the config has a mistake."""

import json
import re
from dataclasses import replace
from pathlib import Path

import pytest
from tests.cli.test_status import Standing, fixture_incident, fixture_tenants, host, llmhost, terminal
from tests.fakes.values import GIB, gpu, held, memory, settings, snapshot, unit

from llmhost.cli.named_units import of_units, units_meant
from llmhost.config.schema import Config
from llmhost.decide.health import health_of
from llmhost.derive.host_view import host_view
from llmhost.model.history.history import History
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, Ok

assert (fixture_incident, fixture_tenants) is not None  # fixtures

TYPO = "\nunit:\n  patterns: [x]\n"
MISTAKE = '{}:{}: unit: unknown key; did you mean "units"?'


def test_a_mistake_in_the_config_is_told_first_and_all_is_shown_by_the_defaults(tmp_path: Path) -> None:
    with host("incident", tmp_path) as (options, env):
        good = llmhost("status", *options, env=env).stdout
        config = tmp_path / "llmhost.yml"
        config.write_text(TYPO)
        mistake = MISTAKE.format(config, 2)
        first = f"warning: {mistake}: all that follows goes by the defaults"
        status, doctor = (llmhost(command, *options, env=env) for command in ("status", "doctor"))
        assert (status.returncode, status.stderr, doctor.returncode, doctor.stderr) == (1, "", 1, "")
        assert [done.stdout.splitlines()[0] for done in (status, doctor)] == [first, first]
        assert status.stdout.split("\n", 1)[1].startswith(good.split("\nCANNOT BE SEEN")[0])
        assert "2 errors, 1 warning" in doctor.stdout
        unseen = json.loads(llmhost("status", "--json", *options, env=env).stdout)["cannot_be_seen"]
        assert {"subject": "config", "cause": "unreadable", "detail": mistake, "matters": True} in unseen
        assert (
            f"what the config says: {mistake}"
            in json.loads(llmhost("doctor", "--json", *options, env=env).stdout)["not_checked"]
        )
    with host("engine-of-each-kind", tmp_path / "other") as (options, env):
        (tmp_path / "other/llmhost.yml").write_text(TYPO)
        done = llmhost("status", *options, env=env)
        assert (done.returncode, done.stdout.splitlines()[1]) == (3, "cannot tell whether all is well")
        with terminal("status", *options, env=env, columns=40) as narrow:
            narrow.rest()
        lines = re.sub(r"\x1b\[[0-9;]*m", "", narrow.shown).splitlines()
        assert lines[0].startswith("warning: ")
        assert max(map(len, lines)) <= 40


def test_a_unit_that_is_named_is_shown_alone_with_all_its_starts(incident: Standing) -> None:
    options, env = incident
    done = llmhost("status", "vllm-744b", *options, env=env)
    assert (done.returncode, done.stderr) == (1, "")
    assert not re.search("^(GPUS|PROCESSES|SHARED MEMORY)", done.stdout, re.MULTILINE)
    findings = [line for line in done.stdout.splitlines() if line.startswith("  ! ")]
    assert findings
    assert all("vllm-744b.service" in line for line in findings)
    (record,) = [line for line in done.stdout.splitlines() if "in the record" in line]
    kept = int(record.split()[0])
    listed = re.findall(r"^    (20\d\d-\d\d-\d\d \d\d:\d\d:\d\d) UTC, ", done.stdout, re.MULTILINE)
    assert len(listed) == kept
    assert listed == sorted(listed, reverse=True)
    document = json.loads(llmhost("status", "vllm-744b.service", "--json", *options, env=env).stdout)
    (unit,) = document["units"]
    assert len(unit["history"]["kept_starts"]) == kept
    assert {finding["subject"] for finding in document["findings"]} == {"vllm-744b.service"}


def test_the_exit_status_is_that_of_the_units_that_are_named(tenants: Standing) -> None:
    options, env = tenants
    whole = llmhost("status", *options, env=env)
    alone = llmhost("status", "vllm@a", *options, env=env)
    assert (whole.returncode, alone.returncode) == (1, 0)
    assert alone.stdout.splitlines()[0] == "healthy"
    assert "Qwen" not in alone.stdout
    both = llmhost("status", r"vllm@Qwen-Qwen3\x2d8B", "vllm@a.service", *options, env=env).stdout
    assert re.findall(r"^  (vllm@\S+)", both, re.MULTILINE) == [r"vllm@Qwen-Qwen3\x2d8B.service", "vllm@a.service"]


def test_a_unit_that_is_named_twice_is_meant_once() -> None:
    seen = host_view(snapshot(units=[unit(aliases=("qwen.service",))]), History(), Config())
    names = [UnitId("qwen.service"), UnitId("vllm.service")]
    assert units_meant(seen, names) == (UnitId("vllm.service"),)


@pytest.mark.parametrize(
    ("environment", "subjects"),
    [
        ({"CUDA_VISIBLE_DEVICES": "0"}, ["GPUs", "GPUs 0, 1"]),
        ({"CUDA_VISIBLE_DEVICES": "2"}, ["GPUs", "GPU 2"]),
        ({"CUDA_VISIBLE_DEVICES": "3"}, ["GPUs"]),
        (None, ["GPUs", "GPU 2", "GPUs 0, 1"]),  # which GPUs it uses is not known
    ],
)
def test_of_a_named_unit_the_findings_of_its_gpus_are_told_also_those_of_several(
    environment: dict[str, str] | None, subjects: list[str]
) -> None:
    gone = [gpu(index, memory=memory(9 * GIB), holders=Ok((held(98 + index, 9 * GIB),))) for index in (0, 1)]
    gpus = [*gone, gpu(2, fabric_ready=False), gpu(3)]
    command = settings("/usr/bin/vllm serve m", environment) if environment else None
    alone = unit(settings=command)
    seen = snapshot(gpus=gpus, processes=[], units=[alone])
    nvml = Ok(replace(seen.nvml.value, driver_mismatch=True)) if isinstance(seen.nvml, Ok) else seen.nvml
    view = host_view(replace(seen, nvml=nvml), History(), Config())
    _, health = of_units(view, health_of(view), [alone.id])
    assert [finding.subject for finding in health.findings] == subjects
    unread = host_view(replace(view.snapshot, units=Failed(Cause.NO_BUS)), History(), Config())
    assert [found.subject for found in of_units(unread, health_of(unread), [alone.id])[1].findings] == ["GPUs"]


def test_on_a_pipe_columns_and_the_locale_count_as_well(incident: Standing) -> None:
    options, env = incident
    narrow = llmhost("status", *options, env=env | {"COLUMNS": "40"}).stdout
    assert max(map(len, narrow.splitlines())) <= 40
    assert narrow.count("        91.7 leftover vllm-744b.service") == 8
    wide = llmhost("status", *options, env=env | {"COLUMNS": "300"}).stdout
    assert 80 < max(map(len, wide.splitlines())) <= 120
    in_c = llmhost("status", *options, env=env | {"LC_ALL": "C"}).stdout
    assert in_c.isascii()
    assert "vllm | 1 core" in in_c


@pytest.mark.parametrize(
    ("name", "complaint"),
    [
        ("nope", "llmhost: there is no unit nope.service"),
        ("vllm@", "vllm@.service is a template; name one of its instances, as vllm@a.service"),
        ("vllm*", 'a unit name cannot have the character "*"'),
    ],
)
def test_a_name_that_is_no_unit_s_is_one_line(tenants: Standing, name: str, complaint: str) -> None:
    done = llmhost("status", "vllm@a", name, *tenants[0], env=tenants[1])
    assert (done.returncode, done.stdout) == (2, "")
    assert complaint in done.stderr.splitlines()[-1]
