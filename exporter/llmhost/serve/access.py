"""Who may see what is not for everybody: whoever sits at this host, or has come in to it.

A browser that is lured to another site cannot be used for it: a name that is made to lead here (DNS rebinding) shows in
the Host header. Of a proxy on this host that says nothing of whom it asks for, nothing shows: it must ask for
/metrics alone. Once there is a web config, whoever it authenticates may see it all too, and this is where to say so.
"""

import ipaddress
import re
from typing import Final

from llmhost.serve.routes import Request

# RFC 7239, RFC 9110 7.6.3, and what proxies have sent before or beside that.
_OF_PROXIES: Final = frozenset(
    {
        "forwarded",
        "via",
        "x-real-ip",
        "x-client-ip",
        "x-cluster-client-ip",
        "true-client-ip",
        "cf-connecting-ip",
        "x-envoy-external-address",
    }
)
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]{2,45})\]|(?P<name>[a-z0-9.-]{1,255}))(?::[0-9]{1,5})?", re.IGNORECASE)


def may_see_all(request: Request) -> bool:
    """Whether it comes over the loopback interface, from nobody else, and for this host by name or address."""
    if not _is_loopback(request.client):
        return False
    if any(name in _OF_PROXIES or name.startswith("x-forwarded") for name in request.headers):
        return False
    match = _HOST.fullmatch(request.headers.get("host", ""))
    if match is None:
        return False
    name = match["six"] or match["name"]
    return name.lower() == "localhost" or _is_loopback(name)


def _is_loopback(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address)
    except ValueError:
        return False
    mapped = found.ipv4_mapped if isinstance(found, ipaddress.IPv6Address) else None
    return (mapped or found).is_loopback
