"""Open the listening socket, or say in one line why not."""

import errno
import os
import socket
from typing import Final

from llmhost.model.listen import ListenAddress, parse_listen

BACKLOG: Final = 128


class ListenError(Exception):
    """Nothing can be served there; str() is one line that says why."""


def open_listener(text: str) -> socket.socket:
    """Listen on [HOST]:PORT, without blocking in accept().

    No host and `[::]` mean every address, IPv4 and IPv6 in one socket; no host means IPv4 alone where the kernel has no
    IPv6. A name means its first IPv4 address, else its first IPv6 address, as Go programs take it. Raises ListenError.
    """
    try:
        address = parse_listen(text)
    except ValueError as error:
        raise ListenError(f'bad listen address "{text}": {error}') from None
    if address.host in {"", "::"}:
        try:
            return _bound(socket.AF_INET6, "::", address)
        except OSError as error:
            if address.host or error.errno not in {errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, errno.EPROTONOSUPPORT}:
                raise _listen_error(address, error) from None
        address = ListenAddress(host="0.0.0.0", port=address.port)
    try:
        found = socket.getaddrinfo(address.host, address.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError):  # socket.gaierror, or a name that IDNA cannot encode
        raise ListenError(f"cannot listen on {address}: no address is known for this host name") from None
    family, _, _, _, sockaddr = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    try:
        return _bound(family, str(sockaddr[0]), address)
    except OSError as error:
        raise _listen_error(address, error) from None


def _bound(family: int, host: str, address: ListenAddress) -> socket.socket:
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        # A restart must not wait for the last run's connections to leave TIME_WAIT (socket(7)).
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if host == "::":
            listener.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        listener.bind((host, address.port))
        listener.listen(BACKLOG)
        listener.setblocking(False)
    except BaseException:
        listener.close()
        raise
    return listener


def _listen_error(address: ListenAddress, error: OSError) -> ListenError:
    match error.errno:
        case errno.EADDRINUSE:
            why = "the port is in use, perhaps by another llmhost"
        case errno.EACCES | errno.EPERM:
            why = "permission denied; ports below 1024 want CAP_NET_BIND_SERVICE"
        case errno.EADDRNOTAVAIL:
            why = "this host has no such address"
        case code:
            why = os.strerror(code) if code else str(error)
    return ListenError(f"cannot listen on {address}: {why}")
