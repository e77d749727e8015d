"""Discovery of units that no pattern names: those that run an engine or hold GPU memory."""

from collections.abc import Iterable

from llmhost.model.gpu import Gpu, NvmlReport
from llmhost.model.ids import SYSTEM_MANAGER
from llmhost.model.process import Process, ProcessTable
from llmhost.model.reading import Ok, Reading
from llmhost.model.system_programs import SYSTEM_COMMS


def units_of_interest(nvml: Reading[NvmlReport], processes: Reading[ProcessTable]) -> set[str]:
    """Give the names of the system manager's units that run an engine or hold GPU memory.

    Units of user managers are known by cgroup only: these managers are not read. A unit does not count for programs
    of the system, such as a display server.
    """
    if not isinstance(processes, Ok):
        return set()
    engines = _units_of(process for process in processes.value.by_pid.values() if process.engine)
    return engines | (units_of_holders(nvml.value.gpus, processes.value) if isinstance(nvml, Ok) else set())


def units_of_holders(gpus: Iterable[Gpu], table: ProcessTable) -> set[str]:
    """Give the names of the system manager's units that hold memory of these GPUs."""
    ids = {holder.process for gpu in gpus if isinstance(gpu.holders, Ok) for holder in gpu.holders.value}
    return _units_of(
        process for process in table.by_pid.values() if process.id in ids and process.comm not in SYSTEM_COMMS
    )


def _units_of(processes: Iterable[Process]) -> set[str]:
    units = {process.placement.unit for process in processes}
    return {unit.name for unit in units if unit is not None and unit.manager == SYSTEM_MANAGER}
