"""Discovery of units that no pattern names: those that run an engine or hold GPU memory."""

from llmhost.model.gpu import NvmlReport
from llmhost.model.ids import SYSTEM_MANAGER, ProcessId
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Ok, Reading
from llmhost.model.system_programs import SYSTEM_COMMS


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
