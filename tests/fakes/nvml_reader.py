"""The NVML source over the fake library, with a clock that can be moved on."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.nvml import FakeNvml

from llmhost.model.gpu import Gpu, GpuHolder, GpuMemory, NvmlReport
from llmhost.model.reading import Ok
from llmhost.sources.base import SourceError
from llmhost.sources.nvml.source import NvmlSource


class Clock:
    """The monotonic clock, moved on by what tests do not want to wait for."""

    def __init__(self) -> None:
        self._ahead = 0.0

    def __call__(self) -> float:
        return time.monotonic() + self._ahead

    def advance(self, seconds: float) -> None:
        self._ahead += seconds


@dataclass
class Reader:
    source: NvmlSource
    clock: Clock = field(default_factory=Clock)

    def read(self, seconds: float = 20.0) -> NvmlReport:
        return self.source.read(self.clock() + seconds)

    def read_memory(self, seconds: float = 20.0) -> NvmlReport:
        return self.source.read_memory(self.clock() + seconds)

    def fail(self, seconds: float = 20.0) -> SourceError:
        """Read, and return the error that must come of it."""
        with pytest.raises(SourceError) as caught:
            self.read(seconds)
        return caught.value

    def gpu(self, index: str = "0") -> Gpu:
        (found,) = [gpu for gpu in self.read().gpus if gpu.index == index]
        return found

    @property
    def child_pid(self) -> int:
        assert self.source._state.child is not None
        return self.source._state.child.pid


class Driver(FakeNvml):
    """A fake driver, and readers of it, which are closed after the test."""

    def __init__(self, directory: Path) -> None:
        super().__init__(directory)
        self._sources: list[NvmlSource] = []

    def reader(
        self,
        *,
        procfs: Path = Path("/proc"),
        environment: Mapping[str, str] | None = None,
        **options: Any,  # noqa: ANN401 - NvmlSource's
    ) -> Reader:
        """Make a reader; the arguments are NvmlSource's, procfs is the real one unless given."""
        clock = Clock()
        source = NvmlSource(
            procfs=procfs,
            environment=self.environment() if environment is None else environment,
            monotonic=clock,
            **options,
        )
        self._sources.append(source)
        return Reader(source, clock)

    def close(self) -> None:
        for source in self._sources:
            source.close()


@pytest.fixture
def driver(tmp_path: Path) -> Iterator[Driver]:
    """Yield a driver that is not loaded until something is written."""
    made = Driver(tmp_path / "nvml")
    yield made
    made.close()


def calls_in(trace: Path) -> list[tuple[str, int, int]]:
    """Return what the library was asked since the trace was begun: call, GPU index or -1, return code."""
    lines = trace.read_text().splitlines() if trace.exists() else []
    return [(call, int(gpu), int(code)) for _, _, call, gpu, code, _ in map(str.split, lines)]


def eventually(condition: Callable[[], bool], seconds: float = 120.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.01)


def memory_of(gpu: Gpu) -> GpuMemory:
    assert isinstance(gpu.memory, Ok), gpu.memory
    return gpu.memory.value


def holders_of(gpu: Gpu) -> dict[int, GpuHolder]:
    assert isinstance(gpu.holders, Ok), gpu.holders
    holders = {holder.pid: holder for holder in gpu.holders.value}
    assert len(holders) == len(gpu.holders.value)
    return holders
