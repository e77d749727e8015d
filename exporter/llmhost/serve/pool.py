"""The open connections: never more than a bound, and one of them ends when another client needs its place.

A client that keeps us waiting (it has not sent its request, or does not read the response) has its slot only until
another needs it. So idle, slow and kept-alive connections cost a slot each, and delay nobody.
"""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Final

MOST_REFUSED: Final = 16  # at a time; further clients are cut off without a word


class SlotState(Enum):
    READING = auto()  # waiting for the client to send
    ANSWERING = auto()  # the client is waiting for us
    WRITING = auto()  # waiting for the client to receive


@dataclass(slots=True, eq=False)
class Slot:
    socket: socket.socket
    refused: bool  # beyond the bound: open only until the client has its 503
    state: SlotState = SlotState.READING
    since: float = field(default_factory=time.monotonic)  # the last change of state


class ConnectionPool:
    """Safe from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._slots: set[Slot] = set()
        self._closed = False

    def take(self, sock: socket.socket) -> Slot | None:
        """Give a new connection a slot, if need be that of the client that has kept us waiting longest.

        A refused slot while every client is waiting for us; None when there are enough of these, or after close().
        """
        with self._changed:
            refusals = sum(slot.refused for slot in self._slots)
            refused = len(self._slots) - refusals >= self._most and not self.make_room()
            if self._closed or (refused and refusals >= MOST_REFUSED):
                return None
            slot = Slot(sock, refused=refused)
            self._slots.add(slot)
            return slot

    def change(self, slot: Slot, state: SlotState) -> None:
        """Set the state. Raises ConnectionAbortedError if the connection has to end instead."""
        with self._changed:
            slot.state, slot.since = state, time.monotonic()
            if slot not in self._slots or (self._closed and state is SlotState.READING):
                raise ConnectionAbortedError

    def leave(self, slot: Slot) -> None:
        with self._changed:
            self._slots.discard(slot)
            self._changed.notify_all()

    def make_room(self) -> bool:
        """Evict the client that has kept us waiting longest; False if there is none."""
        with self._changed:
            waiting = [slot for slot in self._slots if not slot.refused and slot.state is not SlotState.ANSWERING]
            if waiting:
                self._evict(min(waiting, key=lambda slot: slot.since))
            return bool(waiting)

    def close(self, *, grace_seconds: float) -> None:
        """Evict the clients without a whole request at once, all others after the grace time."""
        with self._changed:
            self._closed = True
            for slot in [slot for slot in self._slots if slot.state is SlotState.READING]:
                self._evict(slot)
            self._changed.wait_for(lambda: not self._slots, timeout=grace_seconds)
            for slot in list(self._slots):
                self._evict(slot)

    def _evict(self, slot: Slot) -> None:
        self._slots.discard(slot)
        # Wakes the thread that is in recv() or send(); that thread closes the socket. On an SSLSocket its own
        # shutdown() would also take the TLS state away from under that thread.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(slot.socket, socket.SHUT_RDWR)
