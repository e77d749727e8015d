"""Pictures of few colours, written small."""

import base64
import struct
import zlib
from typing import Any


def paletted(told: dict[str, Any]) -> bytes:
    """Write as PNG what the page's `quantised` gives: width, height, and in base64 the palette and the pixels."""
    width, height = int(told["width"]), int(told["height"])
    pixels = base64.b64decode(told["pixels"])
    # no filter: neighbours in a palette are not alike
    rows = b"".join(b"\0" + pixels[row * width : (row + 1) * width] for row in range(height))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        (
            _chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 8, 3, 0, 0, 0)),
            _chunk(b"PLTE", base64.b64decode(told["palette"])),
            _chunk(b"IDAT", zlib.compress(rows, 9)),
            _chunk(b"IEND", b""),
        )
    )


def _chunk(kind: bytes, data: bytes) -> bytes:
    return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
