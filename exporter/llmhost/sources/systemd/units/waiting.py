"""Waiting within one event loop: for a condition, and for work that others have requested."""

import asyncio
from collections.abc import Callable, Iterable


class Changed:
    """A condition variable without a lock: whoever changes what others wait for calls `notify`."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def notify(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def wait_for(self, condition: Callable[[], bool]) -> None:
        while not condition():
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)


class Requests:
    """Requests for the same work, which one task does: those that come while it runs are served by one more round."""

    def __init__(self) -> None:
        self.made = 0
        self.served = 0

    @property
    def pending(self) -> bool:
        return self.served < self.made

    def make(self) -> bool:
        """Request the work; returns whether a task has to be started for it."""
        idle = not self.pending
        self.made += 1
        return idle


def all_served(requests: Iterable[Requests]) -> Callable[[], bool]:
    """Make a condition: all requests that have been made by now are served."""
    made = [(each, each.made) for each in requests]
    return lambda: all(each.served >= count for each, count in made)
