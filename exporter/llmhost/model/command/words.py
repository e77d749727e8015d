"""Words of a command line, with parts that are not known. Pure.

A word is a str. UNKNOWN stands in it for a part that is not known; no argument of a program can have this character.
"""

import shlex
from collections.abc import Iterable
from typing import Final

UNKNOWN: Final = "\0"
SOME: Final = "\0\0"  # a whole word: any number of words, also none


def is_known(word: str) -> bool:
    return UNKNOWN not in word


def joined(parts: Iterable[str]) -> str:
    """Put the parts of one word together."""
    word = "".join(parts)
    while SOME in word:
        word = word.replace(SOME, UNKNOWN)
    return word


def split_words(value: str) -> tuple[str, ...]:
    """Split the value of a variable at blanks outside of quotes, as systemd does; SOME where a part is not known."""
    if not is_known(value):
        return (SOME,)
    try:
        return tuple(shlex.split(value))
    except ValueError:
        return tuple(value.split())
