"""A unit, from its properties. Names and types are those of org.freedesktop.systemd1(5)."""

from dataclasses import dataclass

from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit, UnitSettings
from llmhost.sources.systemd.properties.relations import RELATIONS
from llmhost.sources.systemd.properties.settings import SETTINGS, parse_settings
from llmhost.sources.systemd.properties.typed_properties import Properties, TypedProperties

# Properties that a PropertiesChanged may bring; all others are constant until a reload, or never signalled.
SIGNALLED = frozenset(
    {
        "ActiveState",
        "SubState",
        "InvocationID",
        "StateChangeTimestamp",
        "StateChangeTimestampMonotonic",
        "ActiveEnterTimestampMonotonic",
        "InactiveExitTimestampMonotonic",
        "InactiveEnterTimestampMonotonic",
        "ActiveExitTimestampMonotonic",
        "ConditionTimestampMonotonic",
        "ConditionResult",
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
USED = SIGNALLED | SETTINGS | RELATIONS | {"Id", "Names", "LoadState", "UnitFileState", "Transient", "ExecCondition"}
_DIRECT = "direct"


class UnreadableUnitError(ValueError):
    """A unit without a readable name or state, or that could not be read."""


@dataclass(frozen=True, slots=True)
class Parsed:
    unit: Unit
    wrong: tuple[str, ...]  # properties that are not of their type


def exec_start(value: object) -> tuple[tuple[str, ...], ...]:
    """Argument vectors of the value of an ExecStart property; () where it is none."""
    return TypedProperties({"ExecStart": value}).commands("ExecStart")


def restarts_directly(properties: Properties) -> bool:
    return properties.get("RestartMode") == _DIRECT


def first_process_seconds(properties: Properties) -> float | None:
    """Start of the first process of the start attempt, on CLOCK_MONOTONIC; None where systemd does not know it.

    That is of properties that were read, and no signal brings it. A daemon-reload forgets it.
    """
    typed = TypedProperties(properties)
    starts = [start for name in ("ExecCondition", "ExecStartPre", "ExecStart") for start in typed.command_starts(name)]
    return starts[0] if starts else None


def parse_unit(properties: Properties) -> Parsed:
    """Read a unit from the properties of its Unit and Service interfaces together.

    Raises UnreadableUnitError, naming the property, where name, load state, active state or sub state are missing.
    """
    typed = TypedProperties(properties)
    loaded = properties.get("LoadState") == "loaded"
    return _parsed(typed, properties, parse_settings(typed) if loaded else None)


def parse_state(properties: Properties, settings: UnitSettings | None) -> Parsed:
    """Read a unit whose settings are known: they are most of the work, and change with no signal."""
    return _parsed(TypedProperties(properties), properties, settings)


def _parsed(typed: TypedProperties, properties: Properties, settings: UnitSettings | None) -> Parsed:
    required = {name: typed.text(name) for name in ("Id", "LoadState", "ActiveState", "SubState")}
    for name, value in required.items():
        if not value:
            raise UnreadableUnitError(f"{properties.get('Id', 'a unit')} has no readable {name}")
    condition_monotonic = typed.point_seconds("ConditionTimestampMonotonic")
    unit = Unit(
        id=UnitId(required["Id"]),
        load_state=required["LoadState"],
        unit_file_state=typed.text("UnitFileState"),
        active_state=required["ActiveState"],
        sub_state=required["SubState"],
        result=typed.text("Result"),
        nrestarts=typed.number("NRestarts"),
        invocation_id=typed.invocation_id(),
        main_pid=typed.pid("MainPID"),
        control_pid=typed.pid("ControlPID"),
        job=typed.job(),
        # ExecMainCode is how the main process ended (CLD_EXITED, …); while it is 0 the status means nothing.
        exec_main_status=typed.number("ExecMainStatus") if typed.number("ExecMainCode") else None,
        state_change_at=typed.point_seconds("StateChangeTimestamp"),
        state_change_monotonic=typed.point_seconds("StateChangeTimestampMonotonic"),
        active_enter_monotonic=typed.point_seconds("ActiveEnterTimestampMonotonic"),
        inactive_exit_monotonic=typed.point_seconds("InactiveExitTimestampMonotonic"),
        inactive_enter_monotonic=typed.point_seconds("InactiveEnterTimestampMonotonic"),
        active_exit_monotonic=typed.point_seconds("ActiveExitTimestampMonotonic"),
        condition_monotonic=condition_monotonic,
        condition_met=None if condition_monotonic is None else typed.flag("ConditionResult"),
        exec_main_start_monotonic=typed.point_seconds("ExecMainStartTimestampMonotonic"),
        exec_main_exit_monotonic=typed.point_seconds("ExecMainExitTimestampMonotonic"),
        settings=settings,
        aliases=tuple(sorted({*typed.texts("Names")} - {required["Id"]})),
    )
    return Parsed(unit, tuple(typed.wrong))


def unloaded_unit(name: str, unit_file_state: str | None) -> Unit:
    """Describe a unit that systemd has not loaded. `unit_file_state` is None where there is no file of it either."""
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
