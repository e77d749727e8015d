"""Listen addresses as users write them: ":10061", "127.0.0.1:10061", "[::1]:10061", "localhost:0"."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final

HIGHEST_PORT: Final = 65535

_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_EXAMPLES = 'such as ":10061", "127.0.0.1:10061" or "[::1]:10061"'


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenAddress:
    host: str  # an IPv4 or IPv6 address or a host name; "" is every address of the host
    port: int  # 0: the kernel picks a free one

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_listen(text: str) -> ListenAddress:
    """Read [HOST]:PORT. An IPv6 address stands in brackets.

    Raises ValueError with one line that says what is wrong. Nothing is looked up: a name need not exist.
    """
    if re.fullmatch(r"[0-9]{1,5}", text):
        raise ValueError(f'a listen address is [HOST]:PORT; did you mean ":{text}"?')
    if "://" in text or "/" in text:
        raise ValueError(f"a listen address is [HOST]:PORT without scheme or path, {_EXAMPLES}")
    host, colon, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not colon or ("[" in text and not bracketed):
        raise ValueError(f"a listen address is [HOST]:PORT, {_EXAMPLES}")
    if ":" in host and not bracketed:
        raise ValueError(f"an IPv6 address stands in brackets, {_EXAMPLES}")
    if not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > HIGHEST_PORT:
        raise ValueError(f"the port is a number from 0 to {HIGHEST_PORT}, {_EXAMPLES}")
    if bracketed:
        host = host[1:-1]
        try:
            ipaddress.IPv6Address(host)
        except ValueError:
            raise ValueError(f"in brackets stands an IPv6 address, {_EXAMPLES}") from None
    elif re.fullmatch(r"[0-9.]+", host):
        try:
            ipaddress.IPv4Address(host)
        except ValueError:
            raise ValueError(f"the host is no IPv4 address, {_EXAMPLES}") from None
    elif host and not _NAME.fullmatch(host):
        raise ValueError(f"the host is no address and no host name, {_EXAMPLES}")
    return ListenAddress(host=host, port=int(port))
