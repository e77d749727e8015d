"""A finding of the doctor, and the unit that a check examines."""

import shlex
from dataclasses import dataclass
from enum import StrEnum

from llmhost.derive.command import servers_of
from llmhost.derive.facts import UnitFacts
from llmhost.derive.host_view import HostView
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.unit import UnitSettings


class Severity(StrEnum):
    """The values stand in the JSON output."""

    ERROR = "error"  # it has gone wrong, or the next start or failure will
    WARNING = "warning"  # it will go wrong some day
    NOTE = "note"  # it may, where something else holds that cannot be seen from here


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    check: str  # stands in the JSON output
    severity: Severity
    unit: str  # "" for the host
    what: str
    why: str
    drop_in: tuple[str, ...] = ()  # the exact lines, with section headers
    remedy: str = ""  # a fix that is no drop-in, or an alternative to it


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A unit that systemd has loaded, with all that is known of it."""

    facts: UnitFacts
    settings: UnitSettings
    view: HostView
    exposed: tuple[str, ...] = ()  # what others than root may change of its guard's line, which root runs

    @property
    def name(self) -> str:
        return self.facts.unit.id.name

    @property
    def record(self) -> UnitHistory | None:
        return self.view.history.units.get(self.facts.unit.id)

    @property
    def command(self) -> tuple[str, tuple[str, ...]]:
        """The first engine of ExecStart= and its command line, with variables expanded; "" for no engine."""
        server = next(iter(servers_of(self.settings)), None)
        return (server.engine, server.argv) if server is not None else ("", ())

    def finding(
        self,
        check: str,
        severity: Severity,
        what: str,
        why: str,
        *drop_in: str,
        remedy: str = "",
    ) -> Finding:
        return Finding(
            check=check, severity=severity, unit=self.name, what=what, why=why, drop_in=drop_in, remedy=remedy
        )


def guard_drop_in(unit: str) -> str:
    """Name the command that installs the guard for a service."""
    return f"llmhost guard --install {shlex.quote(unit)} puts the guard before it"  # names have backslashes
