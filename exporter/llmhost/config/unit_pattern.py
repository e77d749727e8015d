r"""Service names and globs over them, as people write them: `vllm`, `vllm-*.service`.

A glob means what fnmatch.fnmatchcase() makes of it: `*`, `?`, `[abc]`, `[!abc]`; a backslash is itself, since systemd's
escapes (`\x2d`) are part of a name.
"""

import re
from typing import Final

SUFFIX: Final = ".service"
# systemd.unit(5): the other types of units, and its limit and characters of names
_OTHER_TYPE = re.compile(
    r".*\.(?:automount|device|mount|path|scope|slice|snapshot|socket|swap|target|timer)", re.DOTALL
)
LONGEST_NAME: Final = 255

_CHARACTERS = r"A-Za-z0-9:_.\\@\-"
_GLOB = re.compile(rf"(?:[{_CHARACTERS}*?]|\[!?[{_CHARACTERS}]+\])+")


def service_pattern(text: str) -> str:
    """Complete a glob over service names with its ".service"; raises ValueError with a reason of one line."""
    if re.search(r"[\[\]]", text) and not _GLOB.fullmatch(text):
        raise ValueError('a bad glob: "[" opens a set such as "[ab]" or "[!ab]" of characters of a unit name')
    if wrong := re.search(rf"[^{_CHARACTERS}*?\[\]!]|!(?<!\[!)", text):
        raise ValueError(f"a unit name cannot have the character {_shown(wrong[0])}; globs are *, ?, [ab] and [!ab]")
    return _with_suffix(text)


def service_name(text: str) -> str:
    """Complete a service name with its ".service"; raises ValueError with a reason of one line."""
    if wrong := re.search(rf"[^{_CHARACTERS}]", text):
        raise ValueError(f"a unit name cannot have the character {_shown(wrong[0])}")
    return _with_suffix(text)


def _with_suffix(text: str) -> str:
    if text in {"", SUFFIX}:
        raise ValueError("a unit name cannot be empty")
    if _OTHER_TYPE.fullmatch(text):
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
