"""Printing what a command was asked for: all of it, or an error that is the user's to see."""

import io
import sys


class UnwritableError(Exception):
    """What was to be printed could not be; str() is fit for a terminal."""


def write_out(text: str) -> None:
    """Write to stdout and flush. Raises UnwritableError; BrokenPipeError where the reader has gone.

    What the encoding of the locale does not have comes out as "?".
    """
    if sys.stdout is None:
        raise UnwritableError("stdout is closed")
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableError(f"cannot write to stdout: {error.strerror}") from error
