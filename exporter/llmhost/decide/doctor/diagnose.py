"""The doctor's checks of units and the host, in the order of its report. Pure."""

from collections.abc import Callable, Iterator, Mapping, Sequence

from llmhost.decide.doctor.environment import hidden_devices, plain_numbers, small_shm
from llmhost.decide.doctor.fabric import FABRIC_MANAGER, fabric_manager, fabric_order
from llmhost.decide.doctor.finding import Case, Finding, Severity
from llmhost.decide.doctor.guard import guard, guard_blinded, guard_exposed, guard_refusals, guard_restart
from llmhost.decide.doctor.host import driver_mismatch, gpu_overcommitted
from llmhost.decide.doctor.limits import file_limit, memory_limit
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

# The checks of a unit, in the order of the report.
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
    file_limit,
    guard,
    guard_blinded,
    guard_refusals,
    guard_restart,
    guard_exposed,
)
# Read beside the watched units, for other units' checks; examined themselves only if named.
COMPANIONS = frozenset({FABRIC_MANAGER})
_NONE: Mapping[UnitId, tuple[str, ...]] = {}
_WORST_FIRST = (Severity.ERROR, Severity.WARNING, Severity.NOTE)


def diagnose(
    view: HostView, units: Sequence[UnitId] = (), exposed: Mapping[UnitId, tuple[str, ...]] = _NONE
) -> tuple[Finding, ...]:
    """Examine these units, or all watched ones, and the host; the worst finding first.

    A setting is held only against measured facts: without them there is no finding. `exposed` is what others than root
    may change of units' guards that run as root (guard/exposure.py).
    """
    found = [*driver_mismatch(view), *fabric_manager(view)]
    if isinstance(view.facts.units, Ok):
        chosen = [unit for unit in view.facts.units.value if _is_chosen(unit.unit.id, units)]
        for facts in chosen:
            if facts.unit.settings is None:
                continue
            case = Case(facts=facts, settings=facts.unit.settings, view=view, exposed=exposed.get(facts.unit.id, ()))
            found += [finding for check in _OF_UNIT for finding in check(case)]
        found += gpu_overcommitted(view, frozenset(facts.unit.id for facts in chosen))
    return tuple(sorted(found, key=lambda finding: _WORST_FIRST.index(finding.severity)))  # stable: by unit within


def not_checked(view: HostView, units: Sequence[UnitId] = ()) -> Iterator[str]:
    """Yield what could not be checked of these units, or of all watched ones, with the cause."""
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
    if view.config_fault:
        yield f"what the config says: {view.config_fault}"
    if view.history_fault:
        yield f"times and ends of runs: {view.history_fault}"
    elif not any(record.starts for record in view.history.units.values()):
        yield "times and ends of runs: no exporter has recorded any start yet"


def _is_chosen(unit: UnitId, units: Sequence[UnitId]) -> bool:
    return unit in units if units else unit not in COMPANIONS


def _why(reading: Failed | NotApplicable) -> str:
    if isinstance(reading, NotApplicable):
        return reading.why or "switched off"
    return f"{reading.cause.words}: {reading.detail}" if reading.detail else reading.cause.words
