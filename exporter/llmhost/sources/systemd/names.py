"""Unit names, and the object paths that systemd makes of them. Pure."""

import functools
import re
from collections.abc import Iterable
from fnmatch import fnmatchcase

UNITS_PATH = "/org/freedesktop/systemd1/unit/"
SERVICE = ".service"
_MAX_NAME_BYTES = 255  # systemd.unit(5)
_NAME = re.compile(r"[A-Za-z0-9:_.\\@-]+\.[a-z]+")  # systemd.unit(5); a backslash begins an escape like \x2d
_KEPT = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789")
_SET_OR_BACKSLASH = re.compile(r"\[!?\]?[^\]]*\]|\\")
_ESCAPED = re.compile(r"_([0-9a-f]{2})")


def is_unit_name(name: str) -> bool:
    """Check that systemd may be asked about it: version 252 dies of GetUnit("") from another PID namespace."""
    return len(name) <= _MAX_NAME_BYTES and _NAME.fullmatch(name) is not None and name[0] not in "@."


def is_service(name: str) -> bool:
    """Check that it names a service that can run; a template like `vllm@.service` cannot."""
    return is_unit_name(name) and name.endswith(SERVICE) and not name.endswith(f"@{SERVICE}")


def is_instance(name: str) -> bool:
    return "@" in name


@functools.lru_cache(maxsize=1024)  # asked for with each reading of a unit, for each of its relatives
def unit_path(name: str) -> str:
    """Object path of a unit: every byte but ASCII letters and digits escaped, and a leading digit as well."""
    escaped = (
        chr(byte) if byte in _KEPT and not (index == 0 and chr(byte).isdigit()) else f"_{byte:02x}"
        for index, byte in enumerate(name.encode())
    )
    return UNITS_PATH + "".join(escaped)


def unit_name(path: str) -> str:
    """Name of the unit at an object path; "" where there is none."""
    if not path.startswith(UNITS_PATH):
        return ""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), path.removeprefix(UNITS_PATH))


def is_glob(pattern: str) -> bool:
    return any(character in pattern for character in "*?[")


def matches(name: str, globs: Iterable[str]) -> bool:
    """Match as Python's fnmatch does: a backslash is an ordinary character, and only `!` negates a set."""
    return any(fnmatchcase(name, glob) for glob in globs)


def wider(glob: str) -> str:
    """Make a glob of `*` and `?` alone, which matches all names that `glob` does, whoever reads it.

    fnmatch(3), which systemd uses, may take a backslash for an escape, and has sets with `^` and with classes.
    """
    return _SET_OR_BACKSLASH.sub("?", glob)
