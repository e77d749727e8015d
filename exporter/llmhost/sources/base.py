"""What every source has in common."""

from typing import Protocol, TypeVar, runtime_checkable

from llmhost.model.reading import Cause, StuckCall

T_co = TypeVar("T_co", covariant=True)


class SourceError(Exception):
    """Nothing could be read, and why. The only exception that a source raises on purpose."""

    def __init__(self, cause: Cause, detail: str = "", stuck: StuckCall | None = None) -> None:
        super().__init__(f"{cause}: {detail}" if detail else str(cause))
        self.cause = cause
        self.detail = detail
        self.stuck = stuck  # the call that has not come back, where the source knows it


class Source(Protocol[T_co]):
    """Something that can be read, from one thread at a time."""

    def read(self, deadline: float) -> T_co:
        """Read once. `deadline` is on time.monotonic(); past it, raise SourceError(TIMEOUT) rather than go on.

        Raises SourceError. Anything else is a bug, and costs this source's series only.
        """
        ...

    def doing(self) -> str:
        """Say in a few words what a read that has not come back is busy with; called from other threads."""
        ...

    def close(self) -> None:
        """Let go of everything within a second, also while a read is stuck; called from another thread."""
        ...


@runtime_checkable
class TellsStuckCall(Protocol):
    """A source that also knows which call it hangs in."""

    def stuck(self) -> StuckCall | None:
        """Name the call that has not come back; called from other threads."""
        ...
