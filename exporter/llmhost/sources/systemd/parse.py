"""Properties of a service, as D-Bus gives them, turned into the model. Pure.

Names and types are those of org.freedesktop.systemd1(5). Every conversion is checked: a property that is missing (older
systemd) or of another type (a later one, or a fault) is an absent field, never a zero. The latter is also told.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit, UnitSettings

Properties: TypeAlias = Mapping[
    str, Any
]  # as D-Bus has them: names to str, int, bool, bytes, lists; variants taken off

INFINITY = 2**64 - 1  # USEC_INFINITY, and the value of limits that are off
_MICROSECONDS = 1_000_000

# What a PropertiesChanged may bring; everything else is constant until a reload, or never signalled.
SIGNALLED = frozenset(
    {
        "ActiveState",
        "SubState",
        "InvocationID",
        "StateChangeTimestamp",
        "StateChangeTimestampMonotonic",
        "ActiveEnterTimestamp",
        "InactiveExitTimestampMonotonic",
        "InactiveEnterTimestampMonotonic",
        "ActiveExitTimestampMonotonic",
        "ConditionTimestampMonotonic",
        "Result",
        "NRestarts",
        "MainPID",
        "ControlPID",
        "Job",
        "ExecMainCode",
        "ExecMainStatus",
        "ExecMainStartTimestampMonotonic",
        "ExecMainExitTimestampMonotonic",
    }
)
USED = SIGNALLED | {
    "Id",
    "LoadState",
    "UnitFileState",
    "Transient",
    "Type",
    "Restart",
    "KillMode",
    "SendSIGKILL",
    "After",
    "RestartUSec",
    "TimeoutStartUSec",
    "TimeoutStopUSec",
    "StartLimitBurst",
    "StartLimitIntervalUSec",
    "ExecStart",
    "ExecStartPre",
    "Environment",
    "EnvironmentFiles",
    "PassEnvironment",
}


class UnreadableUnitError(ValueError):
    """What makes a unit a unit is missing."""


@dataclass(frozen=True, slots=True)
class Parsed:
    unit: Unit
    wrong: tuple[str, ...]  # properties that were there and not of their type


class _Checked:
    """Properties, taken out by type; remembers those of a wrong one."""

    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self.wrong: list[str] = []

    def _of(self, name: str, kind: type) -> Any:  # noqa: ANN401
        value = self._properties.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.wrong.append(f"{name}: {type(value).__name__} instead of {kind.__name__}")
            return None
        return value

    def text(self, name: str) -> str:
        value: str | None = self._of(name, str)
        return value or ""

    def number(self, name: str) -> int | None:
        value: int | None = self._of(name, int)
        return value

    def flag(self, name: str) -> bool | None:
        value: bool | None = self._of(name, bool)
        return value

    def pid(self, name: str) -> int:
        return self.number(name) or 0

    def job(self) -> int:
        """Read the number of the unit's job, of type (uo); 0 where it has none."""
        value = self._of("Job", list)
        if not value:
            return 0
        if not isinstance(value[0], int) or isinstance(value[0], bool):
            self.wrong.append("Job: not a number and a path")
            return 0
        return value[0]

    def invocation_id(self) -> str:
        value: bytes | None = self._of("InvocationID", bytes)
        return value.hex() if value else ""

    def span_seconds(self, name: str) -> float | None:
        """Read a time span; None where infinite. 0 stays 0: it is what was set."""
        value = self.number(name)
        return None if value is None or value == INFINITY else value / _MICROSECONDS

    def point_seconds(self, name: str) -> float | None:
        """Read a point in time; None where it has not come yet."""
        value = self.number(name)
        return None if value is None or value in (0, INFINITY) else value / _MICROSECONDS

    def commands(self, name: str) -> tuple[tuple[str, ...], ...]:
        """Argument vectors of an Exec*= list, of type a(sasbttttuii)."""
        found = []
        for command in self._of(name, list) or ():
            argv = command[1] if isinstance(command, list) and len(command) > 1 else None
            if not isinstance(argv, list) or not all(isinstance(argument, str) for argument in argv):
                self.wrong.append(f"{name}: not a list of commands")
                return ()
            found.append(tuple(argv))
        return tuple(found)

    def texts(self, name: str) -> tuple[str, ...]:
        values: list[Any] = self._of(name, list) or []
        if not all(isinstance(value, str) for value in values):
            self.wrong.append(f"{name}: not a list of str")
            return ()
        return tuple(values)

    def environment(self) -> tuple[tuple[str, str], ...]:
        found = []
        for assignment in self.texts("Environment"):
            name, _, value = assignment.partition("=")
            found.append((name, value))
        return tuple(found)

    def environment_files(self) -> tuple[str, ...]:
        """Paths of EnvironmentFiles, of type a(sb); whether one may be missing is left out."""
        found = []
        for file in self._of("EnvironmentFiles", list) or ():
            if not isinstance(file, list) or not file or not isinstance(file[0], str):
                self.wrong.append("EnvironmentFiles: not a list of files")
                return ()
            found.append(file[0])
        return tuple(found)


def exec_start(value: object) -> tuple[tuple[str, ...], ...]:
    """Argument vectors of the value of an ExecStart property; () where it is none."""
    return _Checked({"ExecStart": value}).commands("ExecStart")


def parse_unit(properties: Properties) -> Parsed:
    """Read a unit from the properties of its Unit and Service interfaces together.

    Raises UnreadableUnitError, naming the property, where name, load state, active state or sub state are missing.
    """
    checked = _Checked(properties)
    loaded = properties.get("LoadState") == "loaded"
    return _parsed(checked, properties, _settings(checked) if loaded else None)


def parse_state(properties: Properties, settings: UnitSettings | None) -> Parsed:
    """Do the same where the settings are known: they are most of the work, and change with no signal."""
    return _parsed(_Checked(properties), properties, settings)


def _parsed(checked: _Checked, properties: Properties, settings: UnitSettings | None) -> Parsed:
    required = {name: checked.text(name) for name in ("Id", "LoadState", "ActiveState", "SubState")}
    for name, value in required.items():
        if not value:
            raise UnreadableUnitError(f"{properties.get('Id', 'a unit')} has no readable {name}")
    unit = Unit(
        id=UnitId(required["Id"]),
        load_state=required["LoadState"],
        unit_file_state=checked.text("UnitFileState"),
        active_state=required["ActiveState"],
        sub_state=required["SubState"],
        result=checked.text("Result"),
        nrestarts=checked.number("NRestarts"),
        invocation_id=checked.invocation_id(),
        main_pid=checked.pid("MainPID"),
        control_pid=checked.pid("ControlPID"),
        job=checked.job(),
        # The code says how the main process ended (CLD_EXITED, …); while it is 0 the status means nothing.
        exec_main_status=checked.number("ExecMainStatus") if checked.number("ExecMainCode") else None,
        state_change_at=checked.point_seconds("StateChangeTimestamp"),
        state_change_monotonic=checked.point_seconds("StateChangeTimestampMonotonic"),
        active_enter_at=checked.point_seconds("ActiveEnterTimestamp"),
        inactive_exit_monotonic=checked.point_seconds("InactiveExitTimestampMonotonic"),
        inactive_enter_monotonic=checked.point_seconds("InactiveEnterTimestampMonotonic"),
        active_exit_monotonic=checked.point_seconds("ActiveExitTimestampMonotonic"),
        condition_monotonic=checked.point_seconds("ConditionTimestampMonotonic"),
        exec_main_start_monotonic=checked.point_seconds("ExecMainStartTimestampMonotonic"),
        exec_main_exit_monotonic=checked.point_seconds("ExecMainExitTimestampMonotonic"),
        settings=settings,
    )
    return Parsed(unit, tuple(checked.wrong))


def _settings(checked: _Checked) -> UnitSettings:
    """Interval and burst as systemd has them: a 0 in either means that there is no start limit (systemd.unit(5))."""
    return UnitSettings(
        service_type=checked.text("Type"),
        restart=checked.text("Restart"),
        kill_mode=checked.text("KillMode"),
        restart_delay_seconds=checked.span_seconds("RestartUSec"),
        start_timeout_seconds=checked.span_seconds("TimeoutStartUSec"),
        stop_timeout_seconds=checked.span_seconds("TimeoutStopUSec"),
        start_limit_burst=checked.number("StartLimitBurst"),
        start_limit_interval_seconds=checked.span_seconds("StartLimitIntervalUSec"),
        exec_start=checked.commands("ExecStart"),
        exec_start_pre=checked.commands("ExecStartPre"),
        send_sigkill=checked.flag("SendSIGKILL"),
        after=tuple(sorted(checked.texts("After"))),  # systemd gives them in no order
        environment=checked.environment(),
        environment_files=checked.environment_files(),
        pass_environment=checked.texts("PassEnvironment"),
    )


def unloaded_unit(name: str, unit_file_state: str | None) -> Unit:
    """Describe a unit that systemd has not loaded. `unit_file_state` is None where there is no such file either."""
    if unit_file_state is None:
        load_state = "not-found"
    elif unit_file_state.startswith("masked"):  # masked, masked-runtime
        load_state = "masked"
    else:
        load_state = "stub"
    return Unit(
        id=UnitId(name),
        load_state=load_state,
        unit_file_state=unit_file_state or "",
        active_state="inactive",
        sub_state="dead",
    )
