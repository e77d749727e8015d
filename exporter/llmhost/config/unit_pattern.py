r"""Service names and globs over them, as people write them: `vllm`, `vllm-*.service`.

A glob means what fnmatch.fnmatchcase() makes of it: `*`, `?`, `[abc]`, `[!abc]`; a backslash is itself, since systemd's
escapes (`\x2d`) are part of a name.
"""

import re
from typing import Final

SUFFIX: Final = ".service"
# systemd.unit(5): the types of units, and its limit and characters of names
OTHER_SUFFIXES: Final = tuple(
    f".{kind}"
    for kind in (
        "automount",
        "device",
        "mount",
        "path",
        "scope",
        "slice",
        "snapshot",
        "socket",
        "swap",
        "target",
        "timer",
    )
)
LONGEST_NAME: Final = 255

_NAME_CHARACTER = r"[A-Za-z0-9:_.\\@-]"
_GLOB = re.compile(rf"(?:{_NAME_CHARACTER}|[*?]|\[!?{_NAME_CHARACTER}+\])+")
_NAME = re.compile(rf"{_NAME_CHARACTER}+")


def service_pattern(text: str) -> str:
    """Complete a glob over service names with its ".service".

    Raises ValueError with one line that says what is wrong: another type of unit, an unclosed "[", an impossible
    character.
    """
    if "[^" in text:
        raise ValueError('a set is negated with "!", as in "[!abc]"')
    if text.count("[") != text.count("]") or (re.search(r"[\[\]]", text) and not _GLOB.fullmatch(text)):
        raise ValueError('a bad glob: "[" opens a set such as "[ab]" or "[!ab]" of characters of a unit name')
    if wrong := re.search(r"[^A-Za-z0-9:_.\\@*?\[\]!-]|!(?<!\[!)", text):
        raise ValueError(f"a unit name cannot have the character {_shown(wrong[0])}; globs are *, ?, [ab] and [!ab]")
    return _with_suffix(text)


def service_name(text: str) -> str:
    """Complete a service name with its ".service".

    Raises ValueError with one line that says what is wrong.
    """
    if text and not _NAME.fullmatch(text):
        wrong = re.search(rf"(?!{_NAME_CHARACTER}).", text, re.DOTALL)
        raise ValueError(f"a unit name cannot have the character {_shown(wrong[0] if wrong else '')}")
    return _with_suffix(text)


def _with_suffix(text: str) -> str:
    if text in {"", SUFFIX}:
        raise ValueError("a unit name cannot be empty")
    if text.endswith(OTHER_SUFFIXES):
        raise ValueError(f'only services can be watched; did you mean "{text.rpartition(".")[0]}{SUFFIX}"?')
    if not text.endswith(SUFFIX):
        if re.search(r"\.[^.]*[*?\]]$", text):
            raise ValueError(f'say which type of unit: a pattern ends in "{SUFFIX}"')
        text += SUFFIX
    if len(text) > LONGEST_NAME:
        raise ValueError(f"a unit name has at most {LONGEST_NAME} characters")
    return text


def _shown(character: str) -> str:
    return f'"{character}"' if character.isprintable() else ascii(character)
