"""Items handed from any thread to one thread that works them off."""

import threading
from typing import Generic, TypeVar

T = TypeVar("T")


class Mailbox(Generic[T]):
    """Keeps items in the order in which they were put in. Safe from several threads; one of them takes."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._items: list[T] = []
        self._closed = False

    def put(self, item: T) -> None:
        with self._changed:
            self._items.append(item)
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()

    def take(self, seconds: float | None) -> tuple[list[T], bool]:
        """Wait for an item or the close, that long at most; return all items, and whether the mailbox is closed."""
        with self._changed:
            if not self._items and not self._closed:
                self._changed.wait(seconds)
            items, self._items = self._items, []
            return items, self._closed
