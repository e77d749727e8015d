"""How long to wait before the next NVML child, and which GPU it had better not touch."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from llmhost.sources.nvml.wire import WireSkip


class Backoff:
    """Seconds to wait: from the first to the most, twice as long each time, until something works."""

    def __init__(self, first_seconds: float, most_seconds: float) -> None:
        self._first = first_seconds
        self._most = most_seconds
        self._next = first_seconds

    def next_seconds(self) -> float:
        seconds, self._next = self._next, min(2 * self._next, self._most)
        return seconds

    def reset(self) -> None:
        self._next = self._first


@dataclass(slots=True)
class _Suspect:
    strikes: int
    left_out_once: bool
    skip_until: float


@dataclass(frozen=True, slots=True)
class Accused:
    """A GPU by its UUID; by its NVML index, which may be another's one day, only where the UUID is not known."""

    uuid: str | None
    index: int | None = None


class Suspects:
    """GPUs in a call on which a child hung until it was killed.

    The next child leaves the GPU out once, so that the others can be seen. If it hangs a child again, it is left out
    for longer each time: to ask whether it has recovered can cost all GPUs' values for as long as a child may hang.
    """

    def __init__(self, skip_seconds: float) -> None:
        self._skip_seconds = skip_seconds
        self._suspects: dict[Accused, _Suspect] = {}

    def accuse(self, gpu: Accused, now: float) -> None:
        strikes = self._suspects[gpu].strikes + 1 if gpu in self._suspects else 1
        self._suspects[gpu] = _Suspect(
            strikes, left_out_once=False, skip_until=now + (strikes - 1) * self._skip_seconds
        )

    def to_skip(self, now: float) -> list[Accused]:
        return [gpu for gpu, suspect in self._suspects.items() if not suspect.left_out_once or now < suspect.skip_until]

    def answered(self, skipped: Collection[Accused]) -> None:
        """Take note of an answer that left these out: whoever was asked and answered is cleared."""
        for gpu in list(self._suspects):
            if gpu in skipped:
                self._suspects[gpu].left_out_once = True
            else:
                del self._suspects[gpu]

    def forget(self) -> None:
        """Suspect nobody any more."""
        self._suspects = {}


class Whereabouts:
    """Which GPU had which index in the last answer."""

    def __init__(self) -> None:
        self.listed = 0
        self._uuids: dict[int, str] = {}

    def answered(self, listed: int, told: Mapping[int, str]) -> None:
        """Take note of the UUIDs that an answer tells; one that was not touched keeps its own, if no other has it."""
        before = self._uuids if listed == self.listed else {}
        kept = {index: uuid for index, uuid in before.items() if uuid not in told.values()}
        self._uuids = {**kept, **told}
        self.listed = listed

    def uuid_of(self, index: int) -> str | None:
        return self._uuids.get(index)

    def described(self, gpu: Accused) -> WireSkip:
        """Say it to a child, with the index that it had."""
        index = next((index for index, uuid in self._uuids.items() if uuid == gpu.uuid), gpu.index)
        return WireSkip(uuid=gpu.uuid, index=index)
