"""Printing what a command was asked for: all of it, or an error that is the user's to see."""

import contextlib
import io
import os
import sys


class UnwritableError(Exception):
    """What was to be printed could not be; str() is fit for a terminal."""


def write_out(text: str) -> None:
    """Write to stdout and flush. Raises UnwritableError; BrokenPipeError where the reader has gone.

    What the encoding of the locale does not have comes out as "?".
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


def write_answer(text: str) -> None:
    """Do the same for a command whose exit code is its answer: it gives that also where the reader has gone."""
    try:
        write_out(text)
    except BrokenPipeError:
        let_go_of_output()


def complain(text: str) -> None:
    """Write a line to stderr. Where nobody reads it, the exit code still tells."""
    if sys.stderr is not None:
        with contextlib.suppress(OSError):
            sys.stderr.write(f"llmhost: {text}\n")


def let_go_of_output() -> None:
    """Have nothing more go to who read our output, and the interpreter not complain about that when it ends."""
    for stream in (sys.stdout, sys.stderr):
        try:
            if stream is not None:
                stream.flush()
        except OSError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
