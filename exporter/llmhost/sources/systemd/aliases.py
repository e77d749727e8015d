"""What a unit file that is a symbolic link stands for. Reads the file system under an injected root."""

from pathlib import Path

from llmhost.sources.systemd.names import is_service

# systemd.unit(5), "UNIT FILE LOAD PATH", those that an administrator or a package links in, first come first served.
_SEARCH_PATH = (
    "etc/systemd/system",
    "run/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
)
_MAX_LINKS = 8


def alias_target(name: str, root: Path) -> str:
    """Name of the unit that `name` is an alias of; `name` itself where it is none, or where that cannot be read."""
    for _ in range(_MAX_LINKS):
        target = _link_target(name, root)
        # A link under the unit's own name only says where the file lies; one to a template is an instance of it.
        if target == name or not is_service(target):
            return name
        name = target
    return name


def _link_target(name: str, root: Path) -> str:
    for directory in _SEARCH_PATH:
        path = root / directory / name
        try:
            return path.readlink().name
        except FileNotFoundError:
            continue
        except OSError:  # a plain file, or unreadable
            return name
    return name
