"""The servers of units in the history: what they were started with last, for the time when nothing else says it."""

from collections.abc import Mapping
from dataclasses import replace

from llmhost.derive.history.bounds import MAX_UNITS, newest
from llmhost.derive.runs import last_server, present_servers, runs_of
from llmhost.derive.unit_membership import members_by_unit
from llmhost.model.history.history import LastServers
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok
from llmhost.model.snapshot import Snapshot


def next_last_servers(before: Mapping[UnitId, LastServers], snapshot: Snapshot) -> Mapping[UnitId, LastServers]:
    """Note the servers of each unit that systemd has loaded, by its processes and its settings.

    A run keeps the most of them that it had: some may have ended. A unit that is not loaded, or says nothing by its
    settings and runs no server, keeps what it had.
    """
    if not isinstance(snapshot.units, Ok) or not isinstance(snapshot.processes, Ok):
        return before
    members = members_by_unit(snapshot.processes.value)
    found = dict(before)
    for unit in snapshot.watched_units:
        if unit.settings is None:
            continue
        last = before.get(unit.id, LastServers(invocation_id="", servers=()))
        own = members.get(unit.id, ())
        runs = runs_of(unit, own, snapshot.processes, snapshot.host, last.servers)
        servers = tuple(last_server(run) for run in runs if run.engine)
        if present_servers(unit, own, snapshot.processes, snapshot.host):
            if last.invocation_id == unit.invocation_id and len(servers) < len(last.servers):
                continue
            last = replace(last, invocation_id=unit.invocation_id)
        if servers and replace(last, servers=servers) != before.get(unit.id):
            found.pop(unit.id, None)
            found[unit.id] = replace(last, servers=servers)
    return newest(found, MAX_UNITS)
