"""Getting to the bus: where it is, the socket, the authentication; all of a connection that is not messages."""

import asyncio
import os
import socket
from dataclasses import dataclass

from dbus_next._private.address import parse_address

SYSTEM_BUS_VARIABLE = "DBUS_SYSTEM_BUS_ADDRESS"
DEFAULT_SYSTEM_BUS = (
    "unix:path=/var/run/dbus/system_bus_socket"  # D-Bus specification, "Well-known Message Bus Instances"
)


class BusUnreachableError(Exception):
    """No connection to the bus could be made."""


@dataclass(frozen=True, slots=True)
class Address:
    text: str  # as it was written
    transport: str
    options: dict[str, str]


def system_bus_address() -> str:
    """Where the system bus is. Raises BusUnreachableError where the environment names none."""
    address = os.environ.get(SYSTEM_BUS_VARIABLE, DEFAULT_SYSTEM_BUS)
    if not address:
        raise BusUnreachableError(f"{SYSTEM_BUS_VARIABLE} is set and empty")
    return address


def parse_addresses(addresses: str) -> list[Address]:
    """Addresses to be tried in this order, given with semicolons between. Raises BusUnreachableError."""
    try:
        parsed: list[tuple[str, dict[str, str]]] = parse_address(addresses)  # type: ignore[no-untyped-call]
    except ValueError as error:
        raise BusUnreachableError(f"bad bus address {addresses!r}: {error}") from error
    texts = [text for text in addresses.split(";") if text]
    return [Address(text, *one) for text, one in zip(texts, parsed, strict=True)]


async def open_socket(address: Address) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    if address.transport != "unix":
        raise ValueError("only unix sockets are supported")
    if "path" in address.options:
        where = address.options["path"]
    elif "abstract" in address.options:
        where = "\0" + address.options["abstract"]
    else:
        raise ValueError("a unix address needs path= or abstract=")
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM | socket.SOCK_NONBLOCK | socket.SOCK_CLOEXEC)
    try:
        await asyncio.get_running_loop().sock_connect(sock, where)
        return await asyncio.open_unix_connection(sock=sock)
    except BaseException:
        sock.close()
        raise


async def authenticate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """SASL EXTERNAL (D-Bus specification, "Authentication Protocol").

    Where uids are mapped, the bus knows us by another than we do; then it is left to what the socket tells it.
    """
    uid = str(os.geteuid()).encode().hex()
    answer = await _ask(reader, writer, f"\0AUTH EXTERNAL {uid}")
    if answer.startswith(b"REJECTED") and await _ask(reader, writer, "AUTH EXTERNAL") == b"DATA\r\n":
        answer = await _ask(reader, writer, "DATA")
    if not answer.startswith(b"OK "):
        raise ConnectionRefusedError(
            f"the bus did not accept uid {os.geteuid()}: {answer.decode(errors='replace').strip()}"
        )
    writer.write(b"BEGIN\r\n")


async def _ask(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, line: str) -> bytes:
    writer.write(f"{line}\r\n".encode())
    answer = await reader.readline()
    if not answer.endswith(b"\n"):
        raise EOFError("the bus closed the connection during authentication")
    return answer
