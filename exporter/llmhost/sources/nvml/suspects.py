"""GPUs that the next NVML child had better not touch, and the indexes by which it knows them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from llmhost.sources.nvml.wire import WireSkip


@dataclass(frozen=True, slots=True)
class SuspectGpu:
    """A GPU by its UUID; by its NVML index, which may be another's one day, only where the UUID is not known."""

    uuid: str | None
    index: int | None = None


@dataclass(slots=True)
class _Suspicion:
    hangs: int
    due_to_skip: bool  # no answer has left it out yet
    skip_until: float


class Suspects:
    """GPUs in a call on which a child hung until it was killed.

    A suspect is left out of one answer, so that the others can be seen, and is then asked again. If it answers, it is
    cleared. If it hangs a child again, it is left out for longer each time: to ask whether it has recovered can cost
    all GPUs' values for as long as a child may hang.

        accuse ─▶ left out of one answer, and until skip_until ─▶ asked again ─▶ cleared by its answer
           ▲────────────────────────── hangs again ──────────────────┘
    """

    def __init__(self, skip_seconds: float) -> None:
        """Skip for 0 s after the first hang, and for `skip_seconds` more after each one that follows."""
        self._skip_seconds = skip_seconds
        self._suspects: dict[SuspectGpu, _Suspicion] = {}

    def accuse(self, gpu: SuspectGpu, now: float) -> None:
        hangs = self._suspects[gpu].hangs + 1 if gpu in self._suspects else 1
        self._suspects[gpu] = _Suspicion(hangs, due_to_skip=True, skip_until=now + (hangs - 1) * self._skip_seconds)

    def to_skip(self, now: float) -> list[SuspectGpu]:
        return [gpu for gpu, found in self._suspects.items() if found.due_to_skip or now < found.skip_until]

    def answered(self, skipped: Collection[SuspectGpu]) -> None:
        """Take note of an answer that left these out: every other suspect was asked, answered, and is cleared."""
        self._suspects = {gpu: found for gpu, found in self._suspects.items() if gpu in skipped}
        for found in self._suspects.values():
            found.due_to_skip = False

    def forget(self) -> None:
        self._suspects = {}


class GpuIndexes:
    """The NVML index that each GPU had in the last answer."""

    def __init__(self) -> None:
        self.listed = 0
        self._uuids: dict[int, str] = {}

    def answered(self, listed: int, uuids: Mapping[int, str]) -> None:
        """Take the UUIDs of an answer, by index; a GPU that was not touched keeps its own, if no other has it."""
        before = self._uuids if listed == self.listed else {}
        kept = {index: uuid for index, uuid in before.items() if uuid not in uuids.values()}
        self._uuids = {**kept, **uuids}
        self.listed = listed

    def uuid_of(self, index: int) -> str | None:
        return self._uuids.get(index)

    def to_wire(self, gpu: SuspectGpu) -> WireSkip:
        """Name a GPU to a child, with the index that it had."""
        index = next((index for index, uuid in self._uuids.items() if uuid == gpu.uuid), gpu.index)
        return WireSkip(uuid=gpu.uuid, index=index)
