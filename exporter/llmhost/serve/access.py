"""Access to the status: for local clients alone.

A browser on this host that another site has lured cannot be used for it: a name that was made to lead here (DNS
rebinding) shows in the Host header. A proxy on this host that adds no header is taken for a local client: it must pass
on /metrics alone. Once there is a web config, the clients that it authenticates may see it all too, decided here.
"""

import ipaddress
import re

from llmhost.serve.routes import Request

# RFC 7239, RFC 9110 7.6.3, and what proxies have sent before or beside that.
_OF_PROXIES = re.compile(
    "forwarded|via|x-forwarded.*|x-real-ip|x-client-ip|x-cluster-client-ip|true-client-ip|cf-connecting-ip"
    "|x-envoy-external-address"
)
_HOST = re.compile(r"(?:\[(?P<six>[0-9a-f:.]{2,45})\]|(?P<name>[a-z0-9.-]{1,255}))(?::[0-9]{1,5})?", re.IGNORECASE)


def may_see_all(request: Request) -> bool:
    """Tell if the client is a local one: over loopback, for this host by name or address, and through no proxy."""
    if not _is_loopback(request.client):
        return False
    if any(_OF_PROXIES.fullmatch(name) for name in request.headers):
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
