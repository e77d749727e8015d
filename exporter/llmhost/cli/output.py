"""Output of commands: it is written whole, or the user sees an error."""

import contextlib
import io
import os
import sys

_IN_ASCII = str.maketrans({"·": "|", "…": "~", "×": "x", "−": "-", "–": "-"})


class UnwritableError(Exception):
    """The output could not be written; str() is fit for a terminal."""


def write_out(text: str) -> None:
    """Write to stdout and flush. Raises UnwritableError; BrokenPipeError if the reader has gone.

    A character that the locale's encoding lacks becomes "?".
    """
    if sys.stdout is None:
        raise UnwritableError("stdout is closed")
    try:
        if isinstance(sys.stdout, io.TextIOWrapper):
            sys.stdout.reconfigure(errors="replace")  # which writes out what was written before
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableError(f"cannot write to stdout: {error.strerror}") from error


def in_locale(text: str) -> str:
    """Keep to ASCII where the locale is C, though Python writes UTF-8 there (PEP 538)."""
    named = next((value for name in ("LC_ALL", "LC_CTYPE", "LANG") if (value := os.environ.get(name))), "")
    if named not in {"C", "POSIX"}:
        return text
    return text.translate(_IN_ASCII).encode("ascii", errors="replace").decode()


def write_answer(text: str) -> None:
    """Write as write_out does, but keep the exit code of the command if the reader has gone."""
    try:
        write_out(in_locale(text))
    except BrokenPipeError:
        let_go_of_output()


def complain(text: str) -> None:
    """Write a line to stderr; the exit code tells the same if nobody reads it."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"llmhost: {text}\n")


def let_go_of_output() -> None:
    """Send further output nowhere if the reader has gone, so that the interpreter does not complain at its end."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
