"""The terminal of a command, if it has one: its width, colour, and redrawing in place."""

import contextlib
import os
import re
import shutil
import signal
import sys
from collections.abc import Iterator, Mapping
from types import FrameType
from typing import NoReturn

from llmhost.cli.output import write_out
from llmhost.views.text import NARROWEST, WIDTH, Style, folded, rendered

_COLUMNS = re.compile("[1-9][0-9]{0,4}")
_WIDEST = 120  # lines that are longer are hard to read
# xterm's control sequences: alternate screen and cursor off; cursor on and back; home; rest of line; rest of screen.
_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K\r\n", "\x1b[J"


def is_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def wants_colour(environment: Mapping[str, str] | None = None) -> bool:
    """Use colour on a terminal, unless NO_COLOR is set to anything (no-color.org), or TERM is dumb."""
    found = os.environ if environment is None else environment
    return is_terminal() and not found.get("NO_COLOR") and found.get("TERM", "") not in {"", "dumb"}


def width() -> int:
    """Return the columns to fill, within reason: those of $COLUMNS, of the terminal, or 80."""
    columns = (
        shutil.get_terminal_size().columns
        if is_terminal() or _COLUMNS.fullmatch(os.environ.get("COLUMNS", ""))
        else WIDTH
    )
    return max(NARROWEST, min(_WIDEST, columns))


def first_line(config_fault: str) -> str:
    """Warn, above all else, that what follows goes by the defaults; on a terminal folded to its width."""
    if not config_fault:
        return ""
    text = f"{config_fault}: all that follows goes by the defaults"
    wide = width() if is_terminal() else len(text) + NARROWEST
    lines = folded(text, width=wide, first=(("warning: ", Style.BAD),), indent="  ")
    return rendered(lines, width=wide, colour=wants_colour())


@contextlib.contextmanager
def screen() -> Iterator[None]:
    """Draw on the alternate screen, and restore the terminal at the end, also at SIGTERM and SIGHUP."""
    handlers = {number: signal.signal(number, _end) for number in (signal.SIGTERM, signal.SIGHUP)}
    try:
        write_out(_ENTER)
        yield
    finally:
        with contextlib.suppress(Exception):  # the terminal may be gone
            write_out(_LEAVE)
        for number, handler in handlers.items():
            signal.signal(number, handler)


def _end(number: int, _frame: FrameType | None) -> NoReturn:
    raise SystemExit(128 + number)  # as a shell has it


def draw(text: str) -> None:
    """Overwrite the screen in one piece, without clearing it first, so that nothing flickers."""
    lines = text.splitlines()
    rows = shutil.get_terminal_size().lines
    if len(lines) > rows - 1:
        hidden = len(lines) - (rows - 2)
        lines = [*lines[: max(0, rows - 2)], f"… {hidden} more lines: this needs a higher window"]
    write_out(_HOME + "".join(line + _END_OF_LINE for line in lines) + _BELOW)
