"""Printing what a command was asked for: all of it, or an error that is the user's to see."""

import sys


class UnwritableError(Exception):
    """What was to be printed could not be; str() is fit for a terminal."""


def write_out(text: str) -> None:
    """Write to stdout and flush. Raises UnwritableError; BrokenPipeError where the reader has gone."""
    if sys.stdout is None:
        raise UnwritableError("stdout is closed")
    try:
        sys.stdout.write(text)
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except OSError as error:
        raise UnwritableError(f"cannot write to stdout: {error.strerror}") from error
