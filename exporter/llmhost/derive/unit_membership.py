"""The unit that a process is of, and whether of its present activation: by the history, by descent, else by the clock.

Descent comes before age. What the main or control process of the present activation has forked is of that activation,
and what a process of an ended run has forked is of that run, however young. Where the parent is gone, the session
tells: it passes from parent to child, no process can join one, and systemd gives each process that it starts a new one
(credentials(7), setsid(2)).
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

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
from llmhost.model.process import Home, Process, ProcessTable
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
    ended_sessions: frozenset[int] = frozenset()  # that had a process of an ended run not long ago, and may have none
    _found_sessions: dict[UnitId, frozenset[int]] = field(default_factory=dict, init=False, repr=False, compare=False)

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

        In the cgroup of a watched unit it is of that unit; the run that it was seen in before decides the activation.
        Elsewhere it is of the unit of the run that it was seen in: a process that moves to another cgroup stays of its
        unit. So does what one of an ended run has below it in a session, or where no unit is.
        """
        known = self.process_runs.get(process.id)
        place = process.placement
        here = self.units.get(place.unit) if place.unit is not None else None
        if here is not None and (known is None or known.unit != here.id):
            return UnitMembership(unit=here.id, present=self._is_present(process, here))
        if known is None and place.home in {Home.SESSION, Home.NONE}:
            return self._of_ended_ancestor(process)
        unit = self.units.get(known.unit) if known is not None else None
        if known is None or unit is None:
            return None
        return UnitMembership(unit=unit.id, present=_is_under_way(known, unit))

    def _is_present(self, process: Process, unit: Unit) -> bool | None:
        main = main_process(unit, self.processes)
        if is_up(unit):
            started = started_by_systemd(unit, self.processes)
            above = tuple(ancestors(process, self.processes))
            if not {each.id for each in started}.isdisjoint(each.id for each in (process, *above)):
                return True
            if any(self._has_ended(each, unit) for each in above if each.placement.unit == unit.id):
                return False
            session = process.session
            if session not in {each.session for each in started} and session in self._sessions(unit):
                return False
        return is_of_present_activation(process, unit, self.host, main)

    def _has_ended(self, process: Process, unit: Unit) -> bool:
        """Say whether a process in the unit's cgroup is itself known to be of an ended run."""
        known = self.process_runs.get(process.id)
        if known is not None and known.unit == unit.id:
            return _is_under_way(known, unit) is False
        return is_of_present_activation(process, unit, self.host, main_process(unit, self.processes)) is False

    def _sessions(self, unit: Unit) -> frozenset[int]:
        """Give the sessions of ended runs: with one process of such a run, all of a session descend from that run.

        A session keeps its number from others while it has a process. Of one that was known before and whose leader
        lives, the leader may be another by now.
        """
        if unit.id not in self._found_sessions:
            self._found_sessions[unit.id] = frozenset(
                process.session
                for process in self.processes.by_pid.values()
                if process.placement.unit == unit.id and process.session and self._has_ended(process, unit)
            ) | (self.ended_sessions - self.processes.by_pid.keys())
        return self._found_sessions[unit.id]

    def _of_ended_ancestor(self, process: Process) -> UnitMembership | None:
        for above in ancestors(process, self.processes):
            known = self.process_runs.get(above.id)
            unit = self.units.get(known.unit) if known is not None else None
            if known is not None and unit is not None:
                ended = _is_under_way(known, unit) is False
                return UnitMembership(unit=unit.id, present=False) if ended else None
            place = above.placement
            if place.home not in {Home.SESSION, Home.NONE}:
                here = self.units.get(place.unit) if place.unit is not None else None
                ended = here is not None and self._is_present(above, here) is False
                return UnitMembership(unit=here.id, present=False) if here is not None and ended else None
        return None


def started_by_systemd(unit: Unit, processes: ProcessTable) -> tuple[Process, ...]:
    """Give the main and the control process of the present activation, as far as they live in the unit."""
    found = (processes.by_pid.get(pid) for pid in (unit.main_pid, unit.control_pid))
    return tuple(process for process in found if process is not None and process.placement.unit == unit.id)


def _is_under_way(known: RunId, unit: Unit) -> bool | None:
    """Say whether that run is under way; None where systemd does not tell which one is.

    In auto-restart the InvocationID is still that of the ended run.
    """
    if is_up(unit) and known.invocation_id and not unit.invocation_id:
        return None
    return is_up(unit) and unit.invocation_id == known.invocation_id


def members_by_unit(table: ProcessTable) -> Mapping[UnitId, tuple[Process, ...]]:
    """Give the processes in the cgroup of each unit."""
    members: dict[UnitId, list[Process]] = {}
    for process in table.by_pid.values():
        if process.placement.unit is not None:
            members.setdefault(process.placement.unit, []).append(process)
    return {unit: tuple(found) for unit, found in members.items()}
