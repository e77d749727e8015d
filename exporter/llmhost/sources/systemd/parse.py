"""Properties of a service, as D-Bus gives them, turned into the model. Pure.

Names and types are those of org.freedesktop.systemd1(5). Every conversion is checked: a property that is missing (older
systemd) or of another type (a later one, or a fault) is an absent field, never a zero. The latter is also told.
"""

from dataclasses import dataclass

from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit, UnitSettings
from llmhost.sources.systemd.checked import Checked, Properties
from llmhost.sources.systemd.settings import SETTINGS, parse_settings

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
USED = SIGNALLED | SETTINGS | {"Id", "LoadState", "UnitFileState", "Transient"}


class UnreadableUnitError(ValueError):
    """What makes a unit a unit is missing."""


@dataclass(frozen=True, slots=True)
class Parsed:
    unit: Unit
    wrong: tuple[str, ...]  # properties that were there and not of their type


def exec_start(value: object) -> tuple[tuple[str, ...], ...]:
    """Argument vectors of the value of an ExecStart property; () where it is none."""
    return Checked({"ExecStart": value}).commands("ExecStart")


def parse_unit(properties: Properties) -> Parsed:
    """Read a unit from the properties of its Unit and Service interfaces together.

    Raises UnreadableUnitError, naming the property, where name, load state, active state or sub state are missing.
    """
    checked = Checked(properties)
    loaded = properties.get("LoadState") == "loaded"
    return _parsed(checked, properties, parse_settings(checked) if loaded else None)


def parse_state(properties: Properties, settings: UnitSettings | None) -> Parsed:
    """Do the same where the settings are known: they are most of the work, and change with no signal."""
    return _parsed(Checked(properties), properties, settings)


def _parsed(checked: Checked, properties: Properties, settings: UnitSettings | None) -> Parsed:
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
