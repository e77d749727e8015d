"""The unit that a process is of, and whether of its present activation: by the history, else by cgroup and clock."""

from collections.abc import Mapping
from dataclasses import dataclass, replace

from llmhost.derive.activation import (
    is_of_present_activation,
    is_up,
    main_process,
    may_be_of_a_later_run,
    run_changed_since,
)
from llmhost.derive.parentage import ancestors
from llmhost.model.host import Host
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.model.process import Process, ProcessTable
from llmhost.model.unit import Unit

ProcessRuns = Mapping[ProcessId, RunId]


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitMembership:
    """The watched unit that a process is of."""

    unit: UnitId
    present: bool | None  # of its present activation; False: of one that has ended; None: unknown


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitMemberships:
    """Finds the membership of any process."""

    units: Mapping[UnitId, Unit]  # watched ones
    processes: ProcessTable
    host: Host
    process_runs: ProcessRuns

    def of(self, process: Process) -> UnitMembership | None:
        """Find a process's membership; None where it is of no watched unit.

        Processes are read before systemd's units, as they say which units to read. Of a process that was there before
        the unit's present run began, or before its last one had ended, it is not known whether it has outlived its run.
        And one that came after the end of the last run, with all above it, may be of a run that is not known yet.
        """
        found = self._by_what_was_read(process)
        if found is None or found.present is not False:
            return found
        unit, read_at = self.units[found.unit], self.processes.read_at_monotonic
        above = (one for one in ancestors(process, self.processes) if one.placement.unit == found.unit)
        unproven = run_changed_since(unit, read_at) or all(
            may_be_of_a_later_run(one, unit, self.host, read_at) for one in (process, *above)
        )
        return replace(found, present=None) if unproven else found

    def _by_what_was_read(self, process: Process) -> UnitMembership | None:
        """Find it as if processes and units had been read at one time.

        In the cgroup of a watched unit it is of that unit; the run that it was seen in before decides the activation,
        without a clock. Elsewhere it is of the unit of the run that it was seen in: a process that moves to another
        cgroup stays of its unit.
        """
        known = self.process_runs.get(process.id)
        place = process.placement.unit
        here = self.units.get(place) if place is not None else None
        if here is not None and (known is None or known.unit != here.id):
            present = is_of_present_activation(process, here, self.host, main_process(here, self.processes))
            return UnitMembership(unit=here.id, present=present)
        unit = self.units.get(known.unit) if known is not None else None
        if known is None or unit is None:
            return None
        return UnitMembership(unit=unit.id, present=_is_present(known, unit))


def _is_present(known: RunId, unit: Unit) -> bool:
    """Say whether that run is under way. In auto-restart the InvocationID is still that of the ended run."""
    return is_up(unit) and unit.invocation_id == known.invocation_id


def members_by_unit(table: ProcessTable) -> Mapping[UnitId, tuple[Process, ...]]:
    """Give the processes in the cgroup of each unit."""
    members: dict[UnitId, list[Process]] = {}
    for process in table.by_pid.values():
        if process.placement.unit is not None:
            members.setdefault(process.placement.unit, []).append(process)
    return {unit: tuple(found) for unit, found in members.items()}
