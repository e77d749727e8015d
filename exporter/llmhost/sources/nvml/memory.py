"""Memory alone, of the same child: for who must know at once, from a thread that is in no full read."""

from llmhost.model.gpu import NvmlReport
from llmhost.model.reading import StuckCall
from llmhost.sources.nvml.source import NvmlSource


class NvmlMemorySource:
    """Source[NvmlReport] by NvmlSource.read_memory, whose errors it raises."""

    def __init__(self, nvml: NvmlSource) -> None:
        self._nvml = nvml

    def read(self, deadline: float) -> NvmlReport:
        return self._nvml.read_memory(deadline)

    def doing(self) -> str:
        return self._nvml.doing()

    def stuck(self) -> StuckCall | None:
        return self._nvml.stuck()

    def close(self) -> None:
        """Do nothing: the child is the other's."""
