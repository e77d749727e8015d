"""From a request to its response: the table of paths, and what every response gets on its way out."""

import gzip
import hashlib
import re
from base64 import b64encode
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from http import HTTPStatus
from typing import Final, TypeAlias

SMALLEST_GZIPPED_BYTES: Final = 1024  # below, the gain is less than a packet
GZIP_LEVEL: Final = 5
HTML_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_QUALITY = re.compile(r"q=([01](?:\.[0-9]{0,3})?)", re.IGNORECASE)
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,9})?")
_HEADER = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+: [\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    method: str  # HEAD is answered as GET; the body is not sent
    path: str
    query: Mapping[str, Sequence[str]]
    headers: Mapping[str, str]  # names in lower case; the values of a repeated one joined by ", "
    client: str  # IP address

    @property
    def scrape_timeout_seconds(self) -> float | None:
        """The time for which Prometheus says that it waits; None from others."""
        header = self.headers.get("x-prometheus-scrape-timeout-seconds", "")
        return (float(header) or None) if _SECONDS.fullmatch(header) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """`headers` must have a Content-Type; Content-Length and gzip are added on the way out."""

    status: int = 200
    headers: tuple[tuple[str, str], ...]
    body: bytes


Handler: TypeAlias = Callable[[Request], Response]


def text(body: str, *, status: int = 200) -> Response:
    return Response(status=status, headers=(("Content-Type", "text/plain; charset=utf-8"),), body=body.encode())


def html(body: str, *, status: int = 200) -> Response:
    return Response(status=status, headers=(("Content-Type", "text/html; charset=utf-8"),), body=body.encode())


def policy_for(*, style: str, script: str) -> str:
    """Allow a page exactly this style and this script, which may ask us again, and nothing else (CSP Level 3)."""
    style, script = (b64encode(hashlib.sha256(part.encode()).digest()).decode() for part in (style, script))
    return f"{HTML_POLICY}; style-src 'sha256-{style}'; script-src 'sha256-{script}'; connect-src 'self'"


def respond(routes: Mapping[str, Handler], request: Request) -> Response:
    """Let the handler of a path answer, which is spelt exactly as in `routes`: `/metrics/` is not `/metrics`.

    Raises what the handler raises, and ValueError for a response that would break the protocol.
    """
    handler = routes.get(request.path)
    if request.method not in {"GET", "HEAD"}:
        response = text("only GET and HEAD\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
        response = replace(response, headers=(*response.headers, ("Allow", "GET, HEAD")))
    elif handler is None:
        paths = "".join(f"{path}\n" for path in sorted(routes))
        response = text(f"no such page; there are:\n{paths}", status=HTTPStatus.NOT_FOUND)
    else:
        response = handler(request)
    return finished(response, request.headers.get("accept-encoding", ""))


def accepts_gzip(accept_encoding: str) -> bool:
    """Say if an Accept-Encoding header admits gzip (RFC 9110, 12.5.3): by name, else by "*", not with q=0."""
    qualities: dict[str, float] = {}
    for part in accept_encoding.split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        match = _QUALITY.fullmatch(parameters[0]) if parameters else None
        qualities[coding.lower()] = float(match[1]) if match else 0.0 if parameters else 1.0
    return qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0.0))) > 0


def finished(response: Response, accept_encoding: str = "") -> Response:
    """Compress if worthwhile and wanted, and add the headers that every response has. Raises ValueError."""
    given = {name.lower(): value for name, value in response.headers}
    headers, body = list(response.headers), response.body
    if "content-encoding" not in given and len(body) > SMALLEST_GZIPPED_BYTES:
        headers.append(("Vary", "Accept-Encoding"))
        if accepts_gzip(accept_encoding):
            body = gzip.compress(body, compresslevel=GZIP_LEVEL, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
    defaults = [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")]
    if given.get("content-type", "").startswith("text/html"):
        defaults += [("Content-Security-Policy", HTML_POLICY), ("Referrer-Policy", "no-referrer")]
    headers += [(name, value) for name, value in defaults if name.lower() not in given]
    headers.append(("Content-Length", str(len(body))))
    for name, value in headers:
        if not _HEADER.fullmatch(f"{name}: {value}"):
            raise ValueError(f"not a header: {name!r}: {value!r}")
    return Response(status=HTTPStatus(response.status), headers=tuple(headers), body=body)
