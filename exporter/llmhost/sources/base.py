"""The protocol of all sources."""

from typing import Protocol, TypeVar, runtime_checkable

from llmhost.model.reading import Cause, StuckCall

T_co = TypeVar("T_co", covariant=True)


class SourceError(Exception):
    """The reason why nothing could be read. The only exception that a source raises on purpose."""

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
        """Describe in a few words the step at which a read is that has not come back; called from other threads."""
        ...

    def close(self) -> None:
        """Close everything within a second, also while a read is stuck; called from another thread."""
        ...


@runtime_checkable
class ReportsStuckCall(Protocol):
    """A source that also knows the call that it hangs in."""

    def stuck(self) -> StuckCall | None:
        """Return the call that has not come back; called from other threads."""
        ...
