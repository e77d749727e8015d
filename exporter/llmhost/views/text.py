"""Lines for a terminal: cut or folded to its width, coloured on request. Pure.

A line is pieces with a style each. Any local user can choose the names in a piece: only printable characters get
through, so that no name moves the cursor, changes colours or passes for another line.
"""

import unicodedata
from collections.abc import Iterable, Iterator
from enum import Enum
from typing import TypeAlias

from llmhost.model import wording
from llmhost.model.wording import LEAST_SHOWN_BYTES


class Style(Enum):
    """The values are SGR parameters (ECMA-48, 8.3.117)."""

    PLAIN = ""
    HEADING = "1"
    GOOD = "32"
    DOUBT = "33"
    BAD = "31"
    FAINT = "2"
    FILLED = "7"
    BAD_FILLED = "7;31"
    DOUBT_FILLED = "7;33"
    GOOD_FILLED = "7;32"


Piece: TypeAlias = tuple[str, Style]
Line: TypeAlias = tuple[Piece, ...]

WIDTH = 80
NARROWEST = 40
_ELLIPSIS = "…"

size, span, count, ranges = wording.size, wording.span, wording.count, wording.ranges


def plain(text: str) -> Line:
    return ((text, Style.PLAIN),)


def clean(text: str) -> str:
    """Replace characters that are not printable by ?."""
    return "".join(character if character.isprintable() else "?" for character in text)


def columns(text: str) -> int:
    """Count the columns that a text takes on a terminal (Unicode, UAX #11)."""
    if text.isascii():
        return len(text)
    return sum(_columns(character) for character in text)


def _columns(character: str) -> int:
    if unicodedata.combining(character):
        return 0
    return 2 if unicodedata.east_asian_width(character) in "WF" else 1


def cut(text: str, width: int) -> str:
    """Shorten a text to a width, ending in … where it was longer."""
    text = clean(text)
    if columns(text) <= width:
        return text
    kept, used = [], 1
    for character in text:
        used += _columns(character)
        if used > width:
            break
        kept.append(character)
    return "".join(kept) + _ELLIPSIS if width > 0 else ""


def padded(text: str, width: int) -> str:
    """Cut or fill up a text to exactly that width."""
    text = cut(text, width)
    return text + " " * (width - columns(text))


def folded(
    text: str, *, width: int, first: Line = (), indent: str = "", style: Style = Style.PLAIN, whole_words: bool = False
) -> Iterator[Line]:
    """Break prose between words into lines that fit; a word that alone is too long is cut, or with `whole_words` not.

    The first line begins with `first`, the others with the indent.
    """
    before: Line = first or plain(indent)
    room = width - sum(columns(piece) for piece, _ in before)
    words: list[str] = []
    for word in clean(text).split():
        if words and columns(" ".join([*words, word])) > room:
            yield (*before, (" ".join(words), style))
            before, words = plain(indent), []
            room = width - columns(indent)
        words.append(word if whole_words else cut(word, room))
    yield (*before, (" ".join(words), style))


def rendered(lines: Iterable[Line], *, width: int, colour: bool) -> str:
    """Join lines, each of at most that many columns."""
    return "".join(_rendered(line, width, colour=colour) + "\n" for line in lines)


def _rendered(line: Line, width: int, *, colour: bool) -> str:
    whole = [(clean(text), style) for text, style in line]
    over = sum(columns(text) for text, _ in whole) > width
    remaining, out = width, []
    for text, style in whole:
        if remaining <= 0:
            break
        shown = text
        if over and columns(text) >= remaining:
            shown = cut(text + " ", remaining)  # with the mark also where the rest begins in the next piece
        remaining -= columns(shown)
        out.append(f"\x1b[{style.value}m{shown}\x1b[0m" if colour and style.value and shown else shown)
    joined = "".join(out)
    return joined if colour else joined.rstrip()


def gib(count: float) -> str:
    """Size in GiB, the usual unit of GPU memory: 3.3, 91.7, <0.1."""
    return wording.gib(count) if not 0 < count < LEAST_SHOWN_BYTES else "<0.1"
