"""The environment of a command, as far as it is known, and the variables that systemd expands with it. Pure."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from llmhost.model.command.words import UNKNOWN, joined, split_words

_BRACED = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_ALONE = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")
ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)

# systemd.exec(5), "Environment variables in spawned processes", and what shells set by themselves.
_SET_FOR_ALL = re.compile(
    r"PATH|LANG|USER|LOGNAME|HOME|SHELL|INVOCATION_ID|XDG_\w+|TERM|PWD|OLDPWD|HOSTNAME|RANDOM|UID|EUID|PPID|SECONDS|"
    r"(?:RUNTIME|STATE|CACHE|LOGS|CONFIGURATION|CREDENTIALS)_DIRECTORY|MAINPID|MANAGERPID|LISTEN_\w+|NOTIFY_SOCKET|"
    r"WATCHDOG_\w+|SYSTEMD_\w+|JOURNAL_STREAM|SERVICE_RESULT|EXIT_\w+|MONITOR_\w+|PIDFILE|REMOTE_\w+|TRIGGER_\w+|"
    r"MEMORY_PRESSURE_\w+|FDSTORE"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """Variables of a program. A value may have UNKNOWN in it; None: not set."""

    values: Mapping[str, str | None] = field(default_factory=dict)
    unread: str = ""  # what was not read and may set any other variable; "": nothing
    complete: bool = False  # else a variable that is referred to is set by somebody, if nobody knows to what

    def get(self, name: str) -> str | None:
        """Give the value that a program finds; None: not set."""
        if name in self.values:
            return self.values[name]
        return UNKNOWN if self.unread else None

    def referred(self, name: str) -> str | None:
        """Give the value of a variable that somebody refers to."""
        if name in self.values:
            return self.values[name]
        return None if self.complete and not self.unread and not _SET_FOR_ALL.fullmatch(name) else UNKNOWN

    def with_values(self, values: Mapping[str, str | None]) -> "Environment":
        return replace(self, values={**self.values, **values}) if values else self

    def opened(self, unread: str) -> "Environment":
        """Give what is known of it after something that was not read has changed it."""
        return Environment(unread=unread)

    def doubted(self, why: str) -> "Environment":
        """Give what is known of it where a variable may have been dropped."""
        return replace(self, values=dict.fromkeys(self.values, UNKNOWN), unread=self.unread and why)

    def only(self, names: Iterable[str]) -> "Environment":
        """Give a new environment that takes over these variables alone."""
        return Environment(values={name: self.get(name) for name in names})


def merged(environments: Sequence[Environment]) -> Environment:
    """Give what is known where it is one of these."""
    names = {name for environment in environments for name in environment.values}
    values: dict[str, str | None] = {}
    for name in names:
        found = {environment.get(name) for environment in environments}
        values[name] = found.pop() if len(found) == 1 else UNKNOWN
    return Environment(
        values=values,
        unread=next((environment.unread for environment in environments if environment.unread), ""),
        complete=all(environment.complete for environment in environments),
    )


def expanded(argv: Sequence[str], environment: Environment) -> tuple[str, ...]:
    """Expand ${NAME} within words, and $NAME as a word of its own into the words of its value (systemd.service(5))."""
    words: list[str] = []
    for word in argv:
        alone = _ALONE.fullmatch(word)
        if alone is not None:
            words.extend(split_words(environment.referred(alone[1]) or ""))
        else:
            words.append(_with_values(word, environment))
    return tuple(words)


def _with_values(word: str, environment: Environment) -> str:
    def value(found: re.Match[str]) -> str:
        return "$" if found[0] == "$$" else environment.referred(found[1]) or ""

    return joined((_BRACED.sub(value, word),)) if "$" in word else word


def assignments(words: Sequence[str]) -> tuple[Mapping[str, str | None], int]:
    """Read the NAME=value words in front; also give the index of the first word that is none."""
    values: dict[str, str | None] = {}
    for index, word in enumerate(words):
        found = ASSIGNMENT.fullmatch(word)
        if found is None:
            return values, index
        values[found[1]] = found[2]
    return values, len(words)
