"""A peer on a message bus, which may send anything."""

import contextlib
import os
import socket
import threading
from io import BytesIO
from typing import Any, Literal

from dbus_next._private.unmarshaller import Unmarshaller
from dbus_next.constants import MessageType
from dbus_next.message import Message

from llmhost.sources.systemd.bus.message import encode

BUS = "org.freedesktop.DBus"
BUS_PATH = "/org/freedesktop/DBus"


class Peer:
    """Somebody on a bus: a blocking connection that sends and receives whole messages."""

    def __init__(self, address: str) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(address.removeprefix("unix:path="))
        self._sending = threading.Lock()
        self._serial = 0
        uid = str(os.geteuid()).encode().hex()
        self._socket.sendall(f"\0AUTH EXTERNAL {uid}\r\n".encode())
        assert self._socket.recv(100).startswith(b"OK ")
        self._socket.sendall(b"BEGIN\r\n")
        (self.unique_name,) = self.call("Hello")

    def send(self, message: Message) -> int:
        with self._sending:
            self._serial += 1
            message.serial = self._serial
            self._socket.sendall(encode(message))
            return self._serial

    def receive(self) -> Message | None:
        """Return the next message; None once the connection is gone."""
        with contextlib.suppress(OSError):
            return receive_message(self._socket)
        return None

    def call(self, member: str, signature: str = "", *body: object) -> list[Any]:
        """Call the bus itself."""
        serial = self.send(
            Message(BUS, BUS_PATH, BUS, member, signature=signature, body=list(body)),
        )
        while True:
            reply = self.receive()
            assert reply is not None
            if reply.reply_serial == serial:
                assert reply.message_type is MessageType.METHOD_RETURN, reply.body
                return reply.body

    def signal(
        self, path: str, interface: str, member: str, signature: str, *body: object, to: str | None = None
    ) -> None:
        message = Message(
            to,  # type: ignore[arg-type]  # None is its default
            path,
            interface,
            member,
            message_type=MessageType.SIGNAL,
            signature=signature,
            body=list(body),
        )
        self.send(message)

    def close(self) -> None:
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()


def receive_message(connected: socket.socket) -> Message:
    """Return the next message. Raises ConnectionError once the connection is gone."""
    fixed = receive_exactly(connected, 16)
    order: Literal["little", "big"] = "little" if fixed[0] == ord("l") else "big"
    body = int.from_bytes(fixed[4:8], order)
    fields = int.from_bytes(fixed[12:16], order)
    return message_of(fixed + receive_exactly(connected, fields + (-fields & 7) + body))


def message_of(frame: bytes) -> Message:
    message: Message = Unmarshaller(BytesIO(frame)).unmarshall()  # type: ignore[no-untyped-call]
    return message


def receive_exactly(connected: socket.socket, count: int) -> bytes:
    data = b""
    while len(data) < count:
        more = connected.recv(count - len(data))
        if not more:
            raise ConnectionError
        data += more
    return data
