"""The servers of units in the history: what they were started with last, for the time when nothing else says it."""

from collections.abc import Mapping

from llmhost.derive.activation import is_up, waits_to_restart
from llmhost.derive.history.bounds import MAX_UNITS, newest
from llmhost.derive.runs import last_server, present_servers, runs_of
from llmhost.derive.unit_membership import members_by_unit
from llmhost.model.history.history import LastServers
from llmhost.model.host import Host
from llmhost.model.ids import UnitId
from llmhost.model.process import Process, ProcessTable
from llmhost.model.reading import NotApplicable, Ok, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit

_NOT_ASKED = NotApplicable("not asked")
_MOST_SERVERS = 64  # of one unit: its user may start any number


def next_last_servers(before: Mapping[UnitId, LastServers], snapshot: Snapshot) -> Mapping[UnitId, LastServers]:
    """Note the servers of each unit that systemd has loaded: of its processes, and once it is at rest of its settings.

    A run keeps the most of them that it had at once: some may have ended. A unit that is not loaded, or says nothing by
    its settings and runs no server, keeps what it had.
    """
    if not isinstance(snapshot.units, Ok) or not isinstance(snapshot.processes, Ok):
        return before
    members = members_by_unit(snapshot.processes.value)
    found = before
    for unit in snapshot.watched_units:
        found = _with_unit(found, unit, members.get(unit.id, ()), snapshot.processes, snapshot.host)
    return found


def with_written_servers(before: Mapping[UnitId, LastServers], unit: Unit) -> Mapping[UnitId, LastServers]:
    """Note the servers of a unit that has come to rest, by its settings: it may be unloaded by the next observation."""
    return _with_unit(before, unit, (), _NOT_ASKED, _NOT_ASKED)


def _with_unit(
    before: Mapping[UnitId, LastServers],
    unit: Unit,
    members: tuple[Process, ...],
    processes: Reading[ProcessTable],
    host: Reading[Host],
) -> Mapping[UnitId, LastServers]:
    if unit.settings is None:
        return before
    last = before.get(unit.id, LastServers())
    seen = len(present_servers(unit, members, processes, host))
    if not seen and (is_up(unit) or waits_to_restart(unit)):
        return before  # reading settings takes a millisecond, and those of a unit that is loaded are there
    if seen and seen <= last.seen and last.invocation_id == unit.invocation_id:
        return before
    servers = tuple(last_server(run) for run in runs_of(unit, members, processes, host, last.servers) if run.engine)
    if seen:
        now = LastServers(servers=servers, invocation_id=unit.invocation_id, seen=seen)
    else:
        now = LastServers(servers=servers, invocation_id=last.invocation_id, seen=last.seen)
    if not 0 < len(servers) <= _MOST_SERVERS or now == last:
        return before
    return newest({**{known: kept for known, kept in before.items() if known != unit.id}, unit.id: now}, MAX_UNITS)
