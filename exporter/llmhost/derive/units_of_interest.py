"""Discovery of units that no pattern names: those that run an engine or hold GPU memory, or that the history knows."""

from llmhost.model.gpu import NvmlReport
from llmhost.model.history.history import History
from llmhost.model.ids import SYSTEM_MANAGER, ProcessId
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Ok, Reading
from llmhost.model.system_programs import SYSTEM_COMMS

MOST_REMEMBERED = 200  # units; a loop of systemd-run leaves the history a new name each time


def remembered_units(history: History) -> list[str]:
    """Give the names of the system manager's units that were watched before, those that were seen last."""
    known = sorted(history.units.items(), key=lambda item: -item[1].last_seen_at)
    return [unit.name for unit, _ in known if unit.manager == SYSTEM_MANAGER][:MOST_REMEMBERED]


def units_of_interest(nvml: Reading[NvmlReport], processes: Reading[ProcessTable]) -> set[str]:
    """Give the names of the system manager's units that run an engine or hold GPU memory.

    Units of user managers are known by cgroup only: these managers are not read. A unit does not count for programs
    of the system, such as a display server.
    """
    if not isinstance(processes, Ok):
        return set()
    table = processes.value
    holders: set[ProcessId] = set()
    if isinstance(nvml, Ok):
        for gpu in nvml.value.gpus:
            if isinstance(gpu.holders, Ok):
                holders.update(holder.process for holder in gpu.holders.value if holder.process is not None)
    interesting = [
        process
        for process in table.by_pid.values()
        if process.engine or (process.id in holders and process.comm not in SYSTEM_COMMS)
    ]
    units = {process.placement.unit for process in interesting}
    return {unit.name for unit in units if unit is not None and unit.manager == SYSTEM_MANAGER}
