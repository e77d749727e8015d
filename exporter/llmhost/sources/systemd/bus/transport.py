"""A connection to a bus before its first message: the address, the socket, the authentication."""

import asyncio
import contextlib
import os
import re
import socket
from dataclasses import dataclass
from urllib.parse import unquote

SYSTEM_BUS_VARIABLE = "DBUS_SYSTEM_BUS_ADDRESS"
DEFAULT_SYSTEM_BUS = (
    "unix:path=/var/run/dbus/system_bus_socket"  # D-Bus specification, "Well-known Message Bus Instances"
)
_FULL_SECONDS = 0.1  # between two tries to connect to a bus whose queue of connections is full
_OPTION = re.compile(r"([^=]+)=([-0-9A-Za-z_/.\\*%]*)")  # all other bytes of a value are escaped


class BusUnreachableError(Exception):
    """No connection to the bus could be made."""


@dataclass(frozen=True, slots=True)
class Address:
    text: str  # as it was written
    transport: str
    options: dict[str, str]


def system_bus_address() -> str:
    """Address of the system bus. Raises BusUnreachableError where the environment sets it to nothing."""
    address = os.environ.get(SYSTEM_BUS_VARIABLE, DEFAULT_SYSTEM_BUS)
    if not address:
        raise BusUnreachableError(f"{SYSTEM_BUS_VARIABLE} is set and empty")
    return address


def parse_addresses(addresses: str) -> list[Address]:
    """Addresses to try in this order, separated by semicolons. Raises BusUnreachableError.

    D-Bus specification, "Server Addresses". dbus-next has a parser of them among its private parts.
    """
    parsed = [_parse_address(text, addresses) for text in addresses.split(";") if text]
    if not parsed:
        raise BusUnreachableError(f"bad bus address {addresses!r}: it is empty")
    return parsed


def _parse_address(text: str, addresses: str) -> Address:
    transport, colon, given = text.partition(":")
    if not colon:
        raise BusUnreachableError(f"bad bus address {addresses!r}: no transport in {text!r}")
    options = {}
    for option in filter(None, given.split(",")):
        parts = _OPTION.fullmatch(option)
        if parts is None:
            raise BusUnreachableError(f"bad bus address {addresses!r}: {option!r} is not name=value")
        options[parts[1]] = unquote(parts[2])
    return Address(text, transport, options)


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
        while True:
            with contextlib.suppress(BlockingIOError):  # its queue is full (unix(7)): it is there and busy
                sock.connect(where)
                break
            await asyncio.sleep(_FULL_SECONDS)
        return await asyncio.open_unix_connection(sock=sock)
    except BaseException:
        sock.close()
        raise


async def authenticate(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """SASL EXTERNAL (D-Bus specification, "Authentication Protocol").

    In a user namespace the bus may know us by another uid and reject ours; then it takes the uid from the socket.
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
