"""Titles of the config, which come before the table of engines. Pure."""

import re
from collections.abc import Iterable
from fnmatch import translate

from llmhost.model.engines import classify
from llmhost.model.process import Role

_LONGEST_LINE = 4096  # characters of a command line that are matched; users choose theirs


class Titles:
    """Engine and role of processes, by rows of (glob, engine, role) first and then by the table of engines.

    A glob is held against the title or program (argv[0]), and against the command line with blanks between its words;
    against comm where there is no command line. Case counts. The first row that matches decides.
    """

    def __init__(self, rows: Iterable[tuple[str, str, Role]] = ()) -> None:
        self._rows = tuple((re.compile(translate(pattern)), engine, role) for pattern, engine, role in rows)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Titles) and self._rows == other._rows

    def __hash__(self) -> int:
        return hash(self._rows)

    def classify(self, argv: tuple[str, ...], comm: str) -> tuple[str, Role]:
        """Do as `engines.classify`, with the rows before it."""
        if self._rows:
            title = argv[0].rstrip() if argv else comm
            line = " ".join(argv)[:_LONGEST_LINE].rstrip() if argv else comm
            for pattern, engine, role in self._rows:
                if pattern.match(title) or pattern.match(line):
                    return engine, role
        return classify(argv, comm)


NO_TITLES = Titles()
