"""Open the listening socket, or say in one line why not."""

import errno
import os
import socket
from typing import Final

from llmhost.model.listen import parse_listen

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
    both = address.host in {"", "::"} and socket.has_dualstack_ipv6()
    host = address.host or ("::" if both else "0.0.0.0")
    try:
        found = socket.getaddrinfo(host, address.port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):  # socket.gaierror, or a name that IDNA cannot encode
        raise ListenError(f"cannot listen on {address}: no address is known for this host name") from None
    family, _, _, _, sockaddr = min(found, key=lambda entry: entry[0] != socket.AF_INET)
    try:
        listener = socket.create_server(sockaddr, family=family, backlog=BACKLOG, dualstack_ipv6=both)
    except OSError as error:
        match error.errno:
            case errno.EADDRINUSE:
                why = "the port is in use, perhaps by another llmhost"
            case errno.EACCES | errno.EPERM:
                why = "permission denied; ports below 1024 want CAP_NET_BIND_SERVICE"
            case errno.EADDRNOTAVAIL:
                why = "this host has no such address"
            case code:
                why = os.strerror(code) if code else str(error)
        raise ListenError(f"cannot listen on {address}: {why}") from None
    listener.setblocking(False)
    return listener
