"""Who is connected, never more than a bound; and who has to go when somebody new comes.

A client that keeps us waiting (it has not sent its request, or does not read the answer) holds its seat only until
somebody needs it. So idle, slow and kept-alive connections cost a seat each, and delay nobody.
"""

import contextlib
import socket
import threading
import time
from dataclasses import dataclass
from enum import Enum, auto


class State(Enum):
    READING = auto()  # waiting for the client to send
    ANSWERING = auto()  # the client is waiting for us
    WRITING = auto()  # waiting for the client to receive


@dataclass(slots=True, eq=False)
class Seat:
    socket: socket.socket
    state: State = State.READING
    since: float = 0.0  # time.monotonic() of the last change of state
    gone: bool = False  # shut down by us


class Seats:
    """Safe from several threads."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._changed = threading.Condition()
        self._seats: set[Seat] = set()
        self._closed = False

    def __len__(self) -> int:
        with self._changed:
            return len(self._seats)

    def take(self, sock: socket.socket) -> Seat | None:
        """Seat a new connection, if need be in the place of the client that we have waited for longest.

        None when every seat is taken by a client that is waiting for us, or after dismiss_all().
        """
        with self._changed:
            if self._closed or (len(self._seats) >= self._most and not self._dismiss_longest()):
                return None
            seat = Seat(sock, since=time.monotonic())
            self._seats.add(seat)
            return seat

    def make_room(self) -> None:
        """Dismiss the client that we have waited for longest, if there is one."""
        with self._changed:
            self._dismiss_longest()

    def change(self, seat: Seat, state: State) -> bool:
        """Note what the connection is at now; False if it has to end instead."""
        with self._changed:
            seat.state, seat.since = state, time.monotonic()
            return not seat.gone and not (self._closed and state is State.READING)

    def leave(self, seat: Seat) -> None:
        with self._changed:
            self._seats.discard(seat)
            self._changed.notify_all()

    def dismiss_all(self, *, grace_seconds: float) -> None:
        """Shut down who only waits to send, at once, and after the grace time everybody."""
        with self._changed:
            self._closed = True
            for seat in [seat for seat in self._seats if seat.state is State.READING]:
                self._dismiss(seat)
            self._changed.wait_for(lambda: not self._seats, timeout=grace_seconds)
            for seat in list(self._seats):
                self._dismiss(seat)

    def _dismiss_longest(self) -> bool:
        waiting = [seat for seat in self._seats if seat.state is not State.ANSWERING]
        if not waiting:
            return False
        self._dismiss(min(waiting, key=lambda seat: seat.since))
        return True

    def _dismiss(self, seat: Seat) -> None:
        seat.gone = True
        self._seats.discard(seat)
        # Wakes the thread that sits in recv() or send(); that thread closes the socket. On an SSLSocket its own
        # shutdown() would also take the TLS state away from under that thread.
        with contextlib.suppress(OSError):
            socket.socket.shutdown(seat.socket, socket.SHUT_RDWR)
