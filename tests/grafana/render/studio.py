"""Chromium with the page that draws a board; the page is bundled anew each time."""

import contextlib
import functools
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from tests.architecture.checkout import ROOT
from tests.fakes.browser import Browser, Page
from tests.grafana.render.png import paletted

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
        low = max(one["place"]["y"] + one["place"]["h"] for one in board["panels"])  # what is cut off is drawn as well
        with self._browser.page(width=board["width"], height=max(low, board["height"])) as page:
            page.open(self._address)
            page.run(f"draw({json.dumps(board)})")
            page.until("window.drawn()")
            time.sleep(_SETTLE_SECONDS)
            return page.run("window.report"), _picture(page, board["width"], board["height"])


def _picture(page: Page, width: int, height: int) -> bytes:
    clip = {"x": 0, "y": 0, "width": width, "height": height, "scale": 1}
    told = page.tell("Page.captureScreenshot", format="png", clip=clip)
    return paletted(page.run(f"quantised({json.dumps(told['data'])})"))


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
