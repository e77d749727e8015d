"""From a path to its handler: a WSGI application that handlers need to know nothing about."""

import gzip
import hashlib
import logging
import math
import re
from base64 import b64encode
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Any, Final, TypeAlias
from urllib.parse import parse_qs
from wsgiref.types import StartResponse, WSGIApplication

from llmhost.serve.throttle import ThrottledLog

SMALLEST_GZIPPED_BYTES: Final = 1024  # below, the gain is less than a packet
GZIP_LEVEL: Final = 5
MOST_QUERY_FIELDS: Final = 1000
HTML_POLICY: Final = "default-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"

_log = logging.getLogger(__name__)
_QUALITY = re.compile(r"q=([01](?:\.[0-9]{0,3})?)", re.IGNORECASE)
_SECONDS = re.compile(r"[0-9]{1,9}(?:\.[0-9]{0,9})?")


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    path: str
    query: Mapping[str, tuple[str, ...]]
    headers: Mapping[str, str]  # names in lower case
    accept: str  # "" when the client does not say
    accept_encoding: str
    scrape_timeout_seconds: float | None  # what Prometheus says it waits for; None from others
    head: bool  # answer as to GET; the body is not sent
    client: str  # IP address


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
    return f"{HTML_POLICY}; style-src {_hash(style)}; script-src {_hash(script)}; connect-src 'self'"


def _hash(text: str) -> str:
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def application(routes: Mapping[str, Handler]) -> WSGIApplication:
    """Serve each path of `routes`, exactly as it is spelt: `/metrics/` is not `/metrics`.

    A handler that raises costs a 500 and one line of log with its traceback, not the server.
    """
    throttled = ThrottledLog(_log)

    def respond(environ: dict[str, Any]) -> Response:
        if environ["REQUEST_METHOD"] not in {"GET", "HEAD"}:
            answer = text("only GET and HEAD\n", status=HTTPStatus.METHOD_NOT_ALLOWED)
            return Response(status=answer.status, headers=(*answer.headers, ("Allow", "GET, HEAD")), body=answer.body)
        handler = routes.get(environ["PATH_INFO"])
        if handler is None:
            known = "".join(f"{path}\n" for path in sorted(routes))
            return text(f"no such page; there are:\n{known}", status=HTTPStatus.NOT_FOUND)
        try:
            return handler(_request(environ))
        except Exception as error:  # noqa: BLE001 - a bug in one page must not cost the others
            path = environ["PATH_INFO"]
            throttled.log(logging.ERROR, f"{path} {type(error)}", f"no answer to {path}", exception=error)
            return text("an error of this program; its log says more\n", status=HTTPStatus.INTERNAL_SERVER_ERROR)

    def app(environ: dict[str, Any], start_response: StartResponse) -> Iterable[bytes]:
        response = _finished(respond(environ), environ.get("HTTP_ACCEPT_ENCODING", ""))
        status = HTTPStatus(response.status)
        start_response(f"{status.value} {status.phrase}", list(response.headers))
        return [] if environ["REQUEST_METHOD"] == "HEAD" else [response.body]

    return app


def accepts_gzip(accept_encoding: str) -> bool:
    """Whether an Accept-Encoding header admits gzip (RFC 9110, 12.5.3): by name, else by "*", not with q=0."""
    qualities: dict[str, float] = {}
    for part in accept_encoding.split(","):
        coding, *parameters = (piece.strip() for piece in part.split(";"))
        match = _QUALITY.fullmatch(parameters[0]) if parameters else None
        qualities[coding.lower()] = float(match[1]) if match else 0.0 if parameters else 1.0
    return qualities.get("gzip", qualities.get("x-gzip", qualities.get("*", 0.0))) > 0


def scrape_timeout_seconds(header: str | None) -> float | None:
    """Read X-Prometheus-Scrape-Timeout-Seconds; None for what is no positive number."""
    if header is None or not _SECONDS.fullmatch(header):
        return None
    seconds = float(header)
    return seconds if seconds > 0 and math.isfinite(seconds) else None


def _request(environ: Mapping[str, Any]) -> Request:
    headers = {name[5:].replace("_", "-").lower(): value for name, value in environ.items() if name.startswith("HTTP_")}
    try:
        fields = parse_qs(environ.get("QUERY_STRING", ""), keep_blank_values=True, max_num_fields=MOST_QUERY_FIELDS)
    except ValueError:  # more fields than that
        fields = {}
    return Request(
        path=environ["PATH_INFO"],
        query={name: tuple(values) for name, values in fields.items()},
        headers=headers,
        accept=headers.get("accept", ""),
        accept_encoding=headers.get("accept-encoding", ""),
        scrape_timeout_seconds=scrape_timeout_seconds(headers.get("x-prometheus-scrape-timeout-seconds")),
        head=environ["REQUEST_METHOD"] == "HEAD",
        client=environ.get("REMOTE_ADDR", ""),
    )


def _finished(response: Response, accept_encoding: str) -> Response:
    """Compress if worthwhile and wanted, and add the headers that every answer has."""
    given = {name.lower(): value for name, value in response.headers}
    headers = list(response.headers)
    body = response.body
    if "content-encoding" not in given and len(body) > SMALLEST_GZIPPED_BYTES:
        headers.append(("Vary", "Accept-Encoding"))
        if accepts_gzip(accept_encoding):
            body = gzip.compress(body, compresslevel=GZIP_LEVEL, mtime=0)
            headers.append(("Content-Encoding", "gzip"))
    wanted = [("X-Content-Type-Options", "nosniff"), ("Cache-Control", "no-store")]
    if given.get("content-type", "").startswith("text/html"):
        wanted += [("Content-Security-Policy", HTML_POLICY), ("Referrer-Policy", "no-referrer")]
    headers += [(name, value) for name, value in wanted if name.lower() not in given]
    headers.append(("Content-Length", str(len(body))))
    return Response(status=response.status, headers=tuple(headers), body=body)
