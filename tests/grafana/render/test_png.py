"""Pictures of 256 colours: made in Chromium, written by us, read again by hand."""

import base64
import json
import struct
import zlib
from collections.abc import Callable
from pathlib import Path

from tests.fakes.browser import Browser
from tests.grafana.render.png import paletted

QUANTISED = (Path(__file__).parent / "page" / "quantised.js").read_text(encoding="utf-8")
# a plain field, a line of one pixel, and a field with many more colours than a palette has
PAGE = """
document.body.style.cssText = 'margin:0;background:#f4f5f5';
document.body.innerHTML = '<div style="position:absolute;left:0;top:0;width:640px;height:1px;background:#c4162a"></div>'
  + '<div style="position:absolute;left:32px;top:32px;width:32px;height:32px;'
  + 'background:conic-gradient(red, yellow, lime, aqua, blue, magenta, red)"></div>';
"""


def colours_of(png: bytes) -> Callable[[int, int], tuple[int, ...]]:
    chunks = {}
    at = 8
    while at < len(png):
        (size,) = struct.unpack(">I", png[at : at + 4])
        kind, data = png[at + 4 : at + 8], png[at + 8 : at + 8 + size]
        assert struct.unpack(">I", png[at + 8 + size : at + 12 + size]) == (zlib.crc32(kind + data),)
        chunks[kind] = data
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", chunks[b"IHDR"][:10])
    assert (width, height, depth, colour) == (640, 64, 8, 3)
    rows, palette = zlib.decompress(chunks[b"IDAT"]), chunks[b"PLTE"]
    assert len(rows) == 641 * 64
    assert len(palette) == 3 * 256

    def colour_at(x: int, y: int) -> tuple[int, ...]:
        place = 3 * rows[y * 641 + 1 + x]
        return tuple(palette[place : place + 3])

    return colour_at


def test_plain_colours_stay_what_they_are_and_others_come_close() -> None:
    with Browser() as browser, browser.page(width=640, height=64) as page:
        page.run(PAGE)
        page.run(QUANTISED)
        picture = base64.b64encode(page.picture(whole=False)).decode()
        colour_at = colours_of(paletted(page.run(f"quantised({json.dumps(picture)})")))
    assert colour_at(5, 40) == (0xF4, 0xF5, 0xF5)
    assert colour_at(40, 0) == (0xC4, 0x16, 0x2A)
    red, green, blue = colour_at(48, 62)  # halfway round, aqua
    assert red < 30
    assert min(green, blue) > 225
