"""A unit's command line as systemd will run it."""

import re
import shlex
from collections.abc import Mapping, Sequence

_BRACED = re.compile(r"\$\$|\$\{([A-Za-z_][A-Za-z0-9_]*)\}")
_WORD = re.compile(r"\$([A-Za-z_][A-Za-z0-9_]*)")


def expand_variables(command: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """Expand ${NAME} within words, and $NAME as a word of its own into the words of its value (systemd.service(5)).

    A variable that `environment` does not have stays as it is: EnvironmentFile= or the manager may set it.
    """
    words: list[str] = []
    for word in command:
        alone = _WORD.fullmatch(word)
        if alone is not None and alone[1] in environment:
            words.extend(_split(environment[alone[1]]))
        else:
            words.append(_BRACED.sub(lambda found: _replaced(found, environment), word))
    return tuple(words)


def _split(value: str) -> list[str]:
    """Split at blanks outside of quotes, as systemd does."""
    try:
        return shlex.split(value)
    except ValueError:
        return value.split()


def _replaced(found: re.Match[str], environment: Mapping[str, str]) -> str:
    return "$" if found[0] == "$$" else environment.get(found[1], found[0])


def is_guard(command: Sequence[str]) -> bool:
    """Say whether a command before a start is `llmhost guard`, by whatever Python."""
    return "guard" in command and any(word.rsplit("/", 1)[-1] == "llmhost" for word in command)
