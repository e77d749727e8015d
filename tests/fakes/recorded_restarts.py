"""Restarts of a real systemd, recorded: what it signalled, what reads in between gave, and what really ran when.

CI has systemd 252 alone. tests/fixtures/restarts-257.json and -262.json were made, and are made anew, with

    tests/setup/on trixie tests.fakes.recorded_restarts >tests/fixtures/restarts-257.json
    tests/setup/on sid tests.fakes.recorded_restarts >tests/fixtures/restarts-262.json

Each unit ends a few attempts before it is active, or soon after; each attempt leaves a child behind.
"""

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

from tests.fakes.booted import Booted, needs_boot
from tests.fakes.needs import run_by_hand
from tests.fakes.values import unit
from tests.fakes.watched_units import Watched

from llmhost.model.unit import Unit, UnitSettings
from llmhost.model.unit_event import UnitEvent
from llmhost.sources.systemd.source import SystemdSource

_FIXTURES = Path(__file__).parents[1] / "fixtures"
_RAN = "/run/ran"
# A process writes down its unit, its run and its start in ticks, and leaves a child.
_PROCESS = "/opt/process %n; sleep 0.3"
_PROGRAM = f"""#!/bin/bash
echo "$1 $INVOCATION_ID $(cut -d' ' -f22 /proc/$$/stat)" >>{_RAN}
sleep 1000 &
"""
_UNITS = {
    "loads": f"Type=notify\nExecStart=/bin/sh -c '{_PROCESS}; exit 3'",
    "guarded": f"ExecStartPre=/bin/sh -c '{_PROCESS}; exit 3'\nExecStartPre=/bin/true\nExecStart=/bin/sleep 1000",
    "conditional": (
        f"ExecCondition=/bin/sh -c '{_PROCESS}'\nExecStartPre=/bin/sleep 0.3\nType=exec\nExecStart=/nonexistent"
    ),
    "crashes": f"ExecStart=/bin/sh -c '{_PROCESS}; exit 3'",
}
_TEXT = """
[Unit]
StartLimitIntervalSec=0
[Service]
{text}
KillMode=process
Restart=always
RestartSec=200ms
RestartMode={mode}
"""
_SETTINGS = ("service_type", "restart", "restart_mode")
_STARTS = 3
_LEFT_OUT = frozenset({"id", "settings", "state_change_at", "active_enter_at"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Restarts:
    """One unit's; times are on CLOCK_MONOTONIC."""

    events: tuple[UnitEvent, ...]
    reads: tuple[UnitEvent, ...]  # each by a source of its own, and so with a gap
    ran: Mapping[str, int]  # invocation → start of its first process, in ticks since boot


def recorded() -> Mapping[str, Restarts]:
    """Give the recorded restarts, by unit and version of systemd."""
    found = {}
    for path in sorted(_FIXTURES.glob("restarts-*.json")):
        read = json.loads(path.read_text())
        for name, part in read["units"].items():
            found[f"{name} {read['systemd']}"] = Restarts(
                events=_events(part["settings"], part["events"], gap=False),
                reads=_events(part["settings"], part["reads"], gap=True),
                ran=part["ran"],
            )
    return found


def _events(settings: dict[str, Any], lines: list[list[Any]], *, gap: bool) -> tuple[UnitEvent, ...]:
    known = unit("unit.service", settings=UnitSettings(**settings), nrestarts=None)
    found = []
    for at, changes in lines:
        known = replace(known, **changes)
        found.append(UnitEvent(unit=known, at=at, at_monotonic=at, gap=gap))
    return tuple(found)


def _record() -> int:
    needs_boot()
    with Booted() as booted:
        booted.write("/opt/process", _PROGRAM)
        booted.run(["chmod", "755", "/opt/process"])
        texts = {
            f"{name}-{mode}.service": _TEXT.format(text=text, mode=mode)
            for name, text in _UNITS.items()
            for mode in ("normal", "direct")
        }
        for name, text in texts.items():
            booted.write_unit(name, text)
        booted.systemctl("daemon-reload")
        with Watched(booted, *texts) as watched:
            reads: list[UnitEvent] = []
            booted.systemctl("start", "--no-block", *texts)
            while any(len(watched.record(name).starts) < _STARTS for name in texts):
                source = SystemdSource(
                    patterns=(*texts,), discover=False, is_engine_command=lambda _: False, address=booted.bus_address
                )
                found = source.read(time.monotonic() + 10).units
                source.close()
                at = time.monotonic()
                reads += [UnitEvent(unit=one, at=at, at_monotonic=at, gap=True) for one in found]
            events = watched.events
        version = booted.run(["systemctl", "--version"]).stdout.split()[1]
        ran = booted.run(["cat", _RAN]).stdout.splitlines()
    parts = ",\n".join(f'"{name}": {_part(name, events, reads, ran)}' for name in texts)
    sys.stdout.write(f'{{"systemd": "{version}", "units": {{\n{parts}\n}}}}\n')
    return 0


def _part(name: str, events: list[UnitEvent], reads: list[UnitEvent], ran: list[str]) -> str:
    settings = next(event.unit.settings for event in reads if event.unit.id.name == name)
    written = (line.split() for line in ran)
    return (
        f'{{"settings": {json.dumps({key: getattr(settings, key) for key in _SETTINGS})},\n'
        f'"events": [\n{_lines(name, events)}\n],\n"reads": [\n{_lines(name, reads)}\n],\n'
        f'"ran": {json.dumps({invocation: int(ticks) for who, invocation, ticks in written if who == name})}}}'
    )


def _lines(name: str, events: list[UnitEvent]) -> str:
    """Write the time and the changes of each, one a line."""
    before: dict[str, Any] = {}
    lines = []
    for event in events:
        if event.unit.id.name == name:
            now = {each.name: getattr(event.unit, each.name) for each in fields(Unit) if each.name not in _LEFT_OUT}
            changes = {key: value for key, value in now.items() if not before or before[key] != value}
            lines.append(json.dumps([round(event.at_monotonic, 6), changes]))
            before = now
    return ",\n".join(lines)


if __name__ == "__main__":
    sys.exit(run_by_hand(_record))
