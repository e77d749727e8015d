"""Draw the status page of the incident anew: docs/status-page.png and docs/status-page-phone.png.

    python -m tests.page.pictures [DIRECTORY]

The fonts are those of the machine that draws, which is why no test compares the pictures.
"""

import sys
from pathlib import Path

from tests.architecture.checkout import ROOT
from tests.fakes.browser import Browser
from tests.fakes.status_page import handler, text_of, written

from llmhost.serve.http import HttpServer

_WINDOWS = (("status-page", 1000, 900, False), ("status-page-phone", 390, 844, True))


def main() -> None:
    directory = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    text = text_of(written("incident"))
    server = HttpServer("127.0.0.1:0", {"/": handler(lambda: text)}, max_connections=4)
    server.start()
    try:
        with Browser() as browser:
            for name, width, height, dark in _WINDOWS:
                with browser.page(width=width, height=height, dark=dark) as page:
                    page.open(f"http://127.0.0.1:{server.address[1]}/")
                    (directory / f"{name}.png").write_bytes(page.picture(whole=False))
    finally:
        server.stop()


if __name__ == "__main__":
    main()
