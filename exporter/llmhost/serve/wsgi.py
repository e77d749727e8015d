"""Call a WSGI application (PEP 3333) for one request without a body, and hold what it answers to account."""

import io
import re
import sys
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, TypeAlias
from urllib.parse import unquote_to_bytes
from wsgiref.types import WSGIApplication

from llmhost.serve.head import Head

ExcInfo: TypeAlias = tuple[type[BaseException], BaseException, TracebackType] | tuple[None, None, None]

_STATUS = re.compile(r"[1-5][0-9]{2} [\x20-\x7e]+")
_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_VALUE = re.compile(r"[\t\x20-\x7e\x80-\xff]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    status: str  # "200 OK"
    headers: tuple[tuple[str, str], ...]
    body: bytes


def environment(head: Head, *, client: str, server: tuple[str, int], scheme: str) -> dict[str, Any]:
    environ: dict[str, Any] = {
        "REQUEST_METHOD": head.method,
        "SCRIPT_NAME": "",
        "PATH_INFO": unquote_to_bytes(head.path.encode("latin-1")).decode("latin-1"),
        "QUERY_STRING": head.query,
        "SERVER_NAME": server[0],
        "SERVER_PORT": str(server[1]),
        "SERVER_PROTOCOL": f"HTTP/{head.version[0]}.{head.version[1]}",
        "REMOTE_ADDR": client,
        "wsgi.version": (1, 0),
        "wsgi.url_scheme": scheme,
        "wsgi.input": io.BytesIO(),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": True,
        "wsgi.multiprocess": False,
        "wsgi.run_once": False,
    }
    for name, value in head.headers.items():
        # A name with "_" would look like the one with "-".
        if "_" not in name and name not in {"content-length", "content-type"}:
            environ[f"HTTP_{name.upper().replace('-', '_')}"] = value
    return environ


def call(app: WSGIApplication, environ: dict[str, Any]) -> Answer:
    """Run the application to its end. Raises what it raises, and ValueError for an answer that cannot be sent."""
    started: list[tuple[str, list[tuple[str, str]]]] = []
    body: list[bytes] = []

    def start_response(
        status: str, headers: list[tuple[str, str]], exc_info: ExcInfo | None = None, /
    ) -> Callable[[bytes], object]:
        if started and exc_info is None:
            raise ValueError("start_response was called twice")
        started[:] = [(status, headers)]
        return body.append

    result: Iterable[bytes] = app(environ, start_response)
    try:
        body.extend(result)
    finally:
        close = getattr(result, "close", None)
        if close is not None:
            close()
    if not started:
        raise ValueError("start_response was not called")
    status, headers = started[0]
    if not _STATUS.fullmatch(status):
        raise ValueError(f"not a status: {status!r}")
    for name, value in headers:
        if not _NAME.fullmatch(name) or not _VALUE.fullmatch(value):
            raise ValueError(f"not a header: {name!r}: {value!r}")
    return Answer(status=status, headers=tuple(headers), body=b"".join(body))
