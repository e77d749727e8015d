"""The start that a guard waits for, and the limit of that wait. Pure."""

from dataclasses import dataclass

from llmhost.derive.command import with_whole_environment
from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit, UnitSettings

OWN_LIMIT = "--timeout"
DEFAULT_START_SECONDS = 90.0  # systemd-system.conf(5), DefaultTimeoutStartSec=, while the unit's own is not known


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A unit, or a command that runs outside of one."""

    unit: UnitId | None
    is_own: bool = False  # the guard runs in this unit
    needs_systemd: bool  # to learn what the unit needs
    command: tuple[str, ...] = ()
    runs_in: UnitId | None = None  # the service that the guard is in, and the command will run in
    environment: tuple[tuple[str, str], ...] = ()  # the guard's own
    fault: str = ""  # why the unit cannot be found out

    @property
    def stand_in(self) -> Unit:
        """The command as if it were a unit; a unit of which systemd has not told, with what is known without it."""
        environment = self.environment if self.unit is None or self.is_own else ()
        return Unit(
            id=self.unit or UnitId(""),
            load_state="",
            unit_file_state="",
            active_state="inactive",
            sub_state="dead",
            settings=with_whole_environment(
                UnitSettings(exec_start=(self.command,) if self.command else ()), environment
            ),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class WaitLimit:
    """The longest wait. Times are on the monotonic clock."""

    began: float
    timeout_seconds: float
    may_notify: bool  # there is a $NOTIFY_SOCKET, so that systemd may take the guard's messages
    pid: int  # the guard's own
    start_seconds: float | None = None  # TimeoutStartSec= of a unit whose manager is not asked

    def may_extend(self, unit: Unit | None) -> bool:
        """Say whether systemd gives more time to a start that this guard asks for it.

        It takes messages of any process of the unit with NotifyAccess=all, and else of the command itself alone: not of
        a guard below a shell.
        """
        if not self.may_notify or unit is None or unit.settings is None:
            return self.may_notify
        return unit.settings.notify_access == "all" or unit.control_pid == self.pid

    def until(self, unit: Unit | None, command_began: float, *, is_own: bool) -> tuple[float, str]:
        """Give the time at which the wait ends, and the limit's name.

        TimeoutStartSec= counts for each command anew (systemd.service(5)), from the start of the command's process.
        """
        own = self.began + self.timeout_seconds, OWN_LIMIT
        if self.start_seconds is not None:
            start = self.start_seconds
        elif not is_own or self.may_extend(unit):
            return own
        elif unit is None or unit.settings is None:
            start = DEFAULT_START_SECONDS
        elif unit.active_state != "activating" or unit.settings.start_timeout_seconds is None:
            return own
        else:
            start = unit.settings.start_timeout_seconds
        margin = _margin_seconds(start)
        by_systemd = min(self.began, command_began) + start - margin
        if by_systemd >= own[0]:
            return own
        if self.may_notify:
            hint = "with NotifyAccess=all, or without a shell around it, the guard can extend it"
        else:
            hint = "NotifyAccess=exec lets the guard extend it"
        return by_systemd, f"{margin:g} s before TimeoutStartSec={start:g}s would end it; {hint}"


def is_being_stopped(unit: Unit) -> bool:
    """Say whether systemd is ending the unit's processes: nothing starts then, whatever the guard's exit code."""
    return unit.sub_state.startswith(("stop", "final"))  # stop-sigterm, final-sigkill, …


def _margin_seconds(start_timeout_seconds: float) -> float:
    """Give the time to leave for the last line before systemd's own limit."""
    return min(5.0, max(0.5, start_timeout_seconds / 10))
