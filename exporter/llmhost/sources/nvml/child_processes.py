"""The NVML children of one source: started one at a time, and those that were killed and do not die."""

from collections.abc import Callable, Mapping
from pathlib import Path

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.nvml.child_process import Child

_MOST_ABANDONED = 2  # children that were killed and do not die


class Children:
    """For one thread at a time."""

    def __init__(
        self,
        *,
        python: str,
        procfs: Path,
        environment: Mapping[str, str] | None,
        unsupported_seconds: float,
        monotonic: Callable[[], float],
    ) -> None:
        self._python = python
        self._procfs = procfs
        self._environment = environment
        self._unsupported_seconds = unsupported_seconds
        self._monotonic = monotonic
        self._abandoned: list[Child] = []

    def start(self, wake: int) -> Child:
        """Start one. Raises OSError; SourceError(TIMEOUT) where too many hang already."""
        hanging = self.abandoned()
        if len(hanging) >= _MOST_ABANDONED:
            pids = " and ".join(str(pid) for pid in hanging)
            raise SourceError(Cause.TIMEOUT, f"NVML children {pids} hang in the driver and cannot be killed")
        return Child(
            python=self._python,
            procfs=self._procfs,
            environment=self._environment,
            unsupported_seconds=self._unsupported_seconds,
            wake=wake,
            monotonic=self._monotonic,
        )

    def end(self, child: Child, reap_seconds: float) -> None:
        """Kill it, and wait no longer than that for its end."""
        child.kill()
        if not child.reaped(reap_seconds):
            self._abandoned.append(child)

    def abandoned(self) -> tuple[int, ...]:
        """Reap those that have died at last; give the pids of the others."""
        self._abandoned = [child for child in self._abandoned if not child.reaped(0.0)]
        return tuple(child.pid for child in self._abandoned)

    def give_up(self) -> None:
        """Forget them; init will reap them after us."""
        for child in self._abandoned:
            child.give_up()
        self._abandoned = []
