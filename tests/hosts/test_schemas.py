"""The JSON of status and doctor fits docs/*.schema.json, on every written host."""

import json
from enum import StrEnum
from pathlib import Path
from typing import Any

import pytest
from tests.architecture.checkout import ROOT
from tests.fakes.json_schema import faults
from tests.hosts.views import view_of
from tests.hosts.written import looked_at, names, read

from llmhost.decide.doctor.diagnose import diagnose, not_checked
from llmhost.decide.doctor.finding import Severity
from llmhost.decide.health import Level, health_of
from llmhost.derive.attribution import HolderKind
from llmhost.derive.segments import SegmentState
from llmhost.derive.trackers import TrackerState
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.history.unit_history import Trigger, Verdict
from llmhost.model.process import Role
from llmhost.model.segment import SegmentKind
from llmhost.views.doctor import doctor_json
from llmhost.views.status.as_json import status_json

SCHEMAS: dict[str, Any] = {
    name: json.loads((ROOT / f"docs/{name}.schema.json").read_text()) for name in ("status", "doctor")
}


@pytest.mark.parametrize("name", names())
def test_what_is_printed_of_a_written_host_is_as_described(name: str, tmp_path: Path) -> None:
    with looked_at(read(name), tmp_path) as observed:
        view = view_of(observed)
    for kind, text in (
        ("status", status_json(view, health_of(view), all_starts=True)),
        ("doctor", doctor_json(diagnose(view), tuple(not_checked(view)))),
    ):
        assert list(faults(json.loads(text), SCHEMAS[kind], SCHEMAS[kind])) == []


def enum_at(kind: str, *path: str) -> set[str]:
    part = SCHEMAS[kind]
    for name in path:
        part = part[name]
    return {value for value in part["enum"] if value is not None}


@pytest.mark.parametrize(
    ("values", "kind", "path"),
    [
        (Level, "status", ("properties", "health")),
        (HolderKind, "status", ("$defs", "holder", "properties", "kind")),
        (Trigger, "status", ("$defs", "start", "properties", "trigger")),
        (Trigger, "status", ("$defs", "history", "properties", "starts", "propertyNames")),
        (Verdict, "status", ("$defs", "start", "properties", "verdict")),
        (GuardVerdict, "status", ("$defs", "guard", "properties", "verdict")),
        (Role, "status", ("$defs", "unit", "properties", "processes", "propertyNames")),
        (TrackerState, "status", ("properties", "trackers", "propertyNames")),
        (SegmentState, "status", ("$defs", "shared_memory", "properties", "segments", "items", "properties", "state")),
        (SegmentKind, "status", ("$defs", "shared_memory", "properties", "segments", "items", "properties", "kind")),
        (Severity, "doctor", ("properties", "findings", "items", "properties", "severity")),
    ],
)
def test_the_values_that_are_described_are_those_that_there_are(
    values: type[StrEnum], kind: str, path: tuple[str, ...]
) -> None:
    assert enum_at(kind, *path) == {str(value) for value in values}


def test_what_is_not_as_described_is_noticed(tmp_path: Path) -> None:
    with looked_at(read("incident"), tmp_path) as observed:
        view = view_of(observed)
    schema, right = SCHEMAS["status"], status_json(view, health_of(view))

    def faults_with(path: tuple[str | int, ...], value: object) -> list[str]:
        whole = json.loads(right)
        part = whole
        for step in path[:-1]:
            part = part[step]
        part[path[-1]] = value
        return list(faults(whole, schema, schema))

    assert faults_with(("health",), "healthy") == []
    assert faults_with(("schema_version",), 2) == ["$.schema_version is 2, not 1"]
    assert faults_with(("more",), 1) == ["$.more is not described"]
    assert faults_with(("gpus", 1, "used_bytes"), 1.5) == ["$.gpus[1].used_bytes is float, not ['integer', 'null']"]
    assert faults_with(("units", 0, "guarded"), 1) == ["$.units[0].guarded is int, not boolean"]
    assert faults_with(("units", 0, "history", "last_start", "verdict"), "odd")[0].startswith(
        "$.units[0].history.last_start"
    )
    assert faults_with(("units", 0, "processes"), {"nurse": 1})[0].startswith(
        "$.units[0].processes (a name) is 'nurse'"
    )
    missing = json.loads(right)
    del missing["units"][0]["startable"]["value"]
    assert list(faults(missing, schema, schema)) == ["$.units[0].startable has no value"]
