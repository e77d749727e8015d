"""What in the units' settings, and on the host, will go wrong: findings with the numbers that show it. Pure."""

from collections.abc import Callable, Iterator, Sequence

from llmhost.decide.doctor.environment import hidden_devices, plain_numbers, small_shm
from llmhost.decide.doctor.fabric import FABRIC_MANAGER, fabric_manager, fabric_order
from llmhost.decide.doctor.finding import Case, Finding, Severity
from llmhost.decide.doctor.guard import guard, guard_blinded
from llmhost.decide.doctor.host import driver_mismatch, gpu_overcommitted
from llmhost.decide.doctor.limits import core_dumps, file_limit, locked_memory, memory_limit, task_limit
from llmhost.decide.doctor.settings import (
    kill_mode,
    no_sigkill,
    restart_delay,
    restart_on_failure,
    start_limit,
    start_timeout,
    stop_timeout,
)
from llmhost.derive.host_view import HostView
from llmhost.model.ids import UnitId
from llmhost.model.reading import Failed, NotApplicable, Ok

# In the order in which they are told of a unit; each looks at one thing.
_OF_UNIT: tuple[Callable[[Case], Iterator[Finding]], ...] = (
    start_limit,
    start_timeout,
    restart_delay,
    restart_on_failure,
    kill_mode,
    no_sigkill,
    stop_timeout,
    plain_numbers,
    hidden_devices,
    fabric_order,
    small_shm,
    memory_limit,
    task_limit,
    file_limit,
    locked_memory,
    core_dumps,
    guard,
    guard_blinded,
)
# Looked at beside the units that are watched, for what they are to these; not examined unless asked for.
COMPANIONS = frozenset({FABRIC_MANAGER})
_WORST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def diagnose(view: HostView, units: Sequence[UnitId] = ()) -> tuple[Finding, ...]:
    """Give what is found of these units, or of all watched ones, and of the host; the worst first.

    Only what is known is held against a setting: where nothing was measured there is no finding.
    """
    found = [*driver_mismatch(view), *fabric_manager(view)]
    if isinstance(view.facts.units, Ok):
        chosen = [unit for unit in view.facts.units.value if _is_chosen(unit.unit.id, units)]
        for facts in chosen:
            if facts.unit.settings is None:
                continue
            case = Case(facts=facts, settings=facts.unit.settings, view=view)
            found += [finding for check in _OF_UNIT for finding in check(case)]
        found += gpu_overcommitted(view, frozenset(facts.unit.id for facts in chosen))
    return tuple(sorted(found, key=lambda one: _WORST_FIRST.index(one.severity)))  # stable: by unit within


def not_checked(view: HostView, units: Sequence[UnitId] = ()) -> Iterator[str]:
    """Say what could not be checked of these units, or of all watched ones, and why."""
    for unit in view.facts.units.value if isinstance(view.facts.units, Ok) else ():
        if unit.unit.settings is None and _is_chosen(unit.unit.id, units):
            why = "has not loaded it" if unit.unit.load_state == "stub" else f"says {unit.unit.load_state}"
            yield f"the settings of {unit.unit.id.name}: systemd {why}"
    for reading, what in (
        (view.snapshot.units, "the units' settings: systemd cannot be read"),
        (view.snapshot.nvml, "GPUs: what units need, which they use, the driver's library"),
        (view.snapshot.shm, "the size of shared memory"),
    ):
        if not isinstance(reading, Ok):
            yield f"{what} ({_why(reading)})"
    if view.history_fault:
        yield f"times and ends of runs: {view.history_fault}"
    elif not any(record.starts for record in view.history.units.values()):
        yield "times and ends of runs: no exporter has recorded any start yet"


def _is_chosen(unit: UnitId, units: Sequence[UnitId]) -> bool:
    return unit in units if units else unit not in COMPANIONS


def _why(reading: Failed | NotApplicable) -> str:
    if isinstance(reading, NotApplicable):
        return reading.why or "switched off"
    cause = str(reading.cause).replace("_", " ")
    return f"{cause}: {reading.detail}" if reading.detail else cause
