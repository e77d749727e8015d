"""Chromium with the page that draws a board; the page is bundled anew each time."""

import base64
import contextlib
import functools
import json
import os
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.architecture.checkout import ROOT
from tests.fakes.browser import Browser

_TOOLS = ROOT / ".tools" / "grafana-ui"
_PAGE = Path(__file__).parent / "page"
_HTML = '<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="page.css"><div id="board"></div>'
_FILES = ("svg", "woff", "woff2", "ttf", "png")
_SETTLE_SECONDS = 1.0  # for what the library does late: icons, measured text, tables


class Studio:
    def __init__(self, browser: Browser, address: str) -> None:
        self._browser = browser
        self._address = address

    def draw(self, board: dict[str, Any]) -> tuple[list[dict[str, Any]], bytes]:
        """Give how each panel came out, and the picture, cut off at the board's `height`."""
        low = max(
            panel["place"]["y"] + panel["place"]["h"] for panel in board["panels"]
        )  # what is cut off is drawn as well
        with self._browser.page(width=board["width"], height=max(low, board["height"])) as page:
            page.open(self._address)
            page.run(f"draw({json.dumps(board)})")
            page.until("window.drawn()")
            time.sleep(_SETTLE_SECONDS)
            clip = {"x": 0, "y": 0, "width": board["width"], "height": board["height"], "scale": 1}
            picture = page.tell("Page.captureScreenshot", format="png", clip=clip)["data"]
            return page.run("window.report"), _small(base64.b64decode(picture))


def _small(picture: bytes) -> bytes:
    """Leave a third of the bytes, with a palette, where pngquant is installed."""
    command = shutil.which("pngquant")
    return (
        subprocess.run([command, "--speed=1", "-"], input=picture, capture_output=True, check=True).stdout
        if command
        else picture
    )


@contextlib.contextmanager
def studio() -> Iterator[Studio]:
    _bundle()
    handler = functools.partial(_Quiet, directory=str(_TOOLS / "www"))
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        with Browser() as browser:
            yield Studio(browser, f"http://127.0.0.1:{server.server_address[1]}/")
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


class _Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass


def _bundle() -> None:
    if subprocess.run([ROOT / "tests/setup/grafana-ui"], check=False).returncode:
        sys.exit(1)  # it has said why
    (_TOOLS / "www" / "index.html").write_text(_HTML + '<script src="page.js"></script>')
    command: list[str | Path] = [
        _TOOLS / "node_modules" / ".bin" / "esbuild",
        _PAGE / "page.jsx",
        "--bundle",
        f"--outdir={_TOOLS / 'www'}",
        "--format=iife",
        "--platform=browser",
        '--define:process.env.NODE_ENV="production"',
        "--define:global=window",
        *(f"--loader:.{kind}=dataurl" for kind in _FILES),
        "--external:monaco-editor",  # an editor, which nothing here opens
        "--log-level=warning",
    ]
    subprocess.run(command, check=True, env={**os.environ, "NODE_PATH": str(_TOOLS / "node_modules")})
