"""Waiting for something to become true, within one event loop."""

import asyncio
from collections.abc import Callable


class Progress:
    """Whoever changes what others may be waiting for calls `made`; they look again."""

    def __init__(self) -> None:
        self._waiting: set[asyncio.Future[None]] = set()

    def made(self) -> None:
        for future in self._waiting:
            if not future.done():
                future.set_result(None)

    async def until(self, condition: Callable[[], bool]) -> None:
        while not condition():
            future = asyncio.get_running_loop().create_future()
            self._waiting.add(future)
            try:
                await future
            finally:
                self._waiting.discard(future)
