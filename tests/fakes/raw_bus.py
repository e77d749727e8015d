"""A server that speaks just enough D-Bus to misbehave at any point: a script runs for each connection, in a thread."""

import contextlib
import socket
import tempfile
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

from dbus_next.constants import MessageType
from dbus_next.message import Message
from tests.fakes.bus_peer import BUS, receive_exactly, receive_message

from llmhost.sources.systemd.bus.connection import BusConnection, Callee
from llmhost.sources.systemd.bus.message import encode

PEER = Callee(BUS, "/x", "x.Y")


class Connection:
    """The server's side of one connection."""

    def __init__(self, connected: socket.socket) -> None:
        self.socket = connected
        self.auth_line = b""

    def authenticate(self) -> None:
        """Let anybody in, up to and with BEGIN."""
        self.auth_line = self._line()
        self.socket.sendall(b"OK 0123456789abcdef0123456789abcdef\r\n")
        assert self._line() == b"BEGIN"

    def greet(self) -> None:
        """Let anybody in and answer Hello."""
        self.authenticate()
        self.reply(self.receive(), "s", [":1.7"])

    def receive(self) -> Message:
        return receive_message(self.socket)

    def reply(self, call: Message, signature: str = "", body: list[object] | None = None) -> None:
        self.socket.sendall(frame_of(reply_to(call, signature, body)))

    def exactly(self, count: int) -> bytes:
        return receive_exactly(self.socket, count)

    def wait_for_end(self) -> None:
        while self.socket.recv(4096):
            pass

    def _line(self) -> bytes:
        line = b""
        while not line.endswith(b"\r\n"):
            line += self.exactly(1)
        return line.strip(b"\0\r\n")


def frame_of(message: Message, *, sender: str = BUS) -> bytes:
    """Bytes of a message, with its sender, which dbus-next leaves to the bus to fill in."""
    message.serial = message.serial or 1
    return with_field(encode(message), 7, b"\x01s\0" + len(sender).to_bytes(4, "little") + sender.encode() + b"\0")


def reply_to(call: Message, signature: str = "", body: list[object] | None = None) -> Message:
    return Message(
        message_type=MessageType.METHOD_RETURN, reply_serial=call.serial, signature=signature, body=body or []
    )


def signal(member: str, signature: str = "", *body: object) -> Message:
    return Message(
        path="/x",
        interface="x.Y",
        member=member,
        message_type=MessageType.SIGNAL,
        signature=signature,
        body=list(body),
    )


def with_field(frame: bytes, code: int, variant: bytes) -> bytes:
    """Append a header field to a little-endian message; `variant` as it stands on the wire at an offset of 1 mod 8."""
    fields = int.from_bytes(frame[12:16], "little")
    body = frame[16 + fields + (-fields & 7) :]
    header = frame[16 : 16 + fields]
    header += b"\0" * (-len(header) & 7) + bytes([code]) + variant
    padding = b"\0" * (-len(header) & 7)
    return frame[:12] + len(header).to_bytes(4, "little") + header + padding + body


@contextlib.contextmanager
def raw_bus(script: Callable[[Connection], None]) -> Iterator[str]:
    """Serve connections by the script, one after the other; yields the bus address."""
    with tempfile.TemporaryDirectory() as directory, socket.socket(socket.AF_UNIX) as listener:
        path = Path(directory) / "bus"
        listener.bind(str(path))
        listener.listen()
        connections = []

        def serve() -> None:
            with contextlib.suppress(OSError):
                while True:
                    connected, _ = listener.accept()
                    connections.append(connected)
                    with connected, contextlib.suppress(OSError):
                        script(Connection(connected))

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"unix:path={path}"
        finally:
            for ended in (listener, *connections):
                with contextlib.suppress(OSError):
                    ended.shutdown(socket.SHUT_RDWR)
            thread.join(5)
            assert not thread.is_alive()


@contextlib.asynccontextmanager
async def connected(address: str, *, call_timeout_seconds: float = 5.0) -> AsyncIterator[BusConnection]:
    bus = await BusConnection.connect(address, call_timeout_seconds=call_timeout_seconds)
    try:
        yield bus
    finally:
        await bus.close()
