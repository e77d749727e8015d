"""What the drop-in says that puts the guard before a service. Pure."""

import re

# systemd/guard.conf has these lines; a test holds it to that.
SHIPPED_COMMAND = "ExecStartPre=+/opt/llmhost/bin/python -I -m llmhost guard"
_SHIPPED_NOTIFY = "NotifyAccess=exec"
_PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")


class UnfitError(Exception):
    """The installation cannot be named in a unit file. str() is one line."""


def guard_drop_in_text(shipped: str, python: str, notify_access: str) -> str:
    """Make of systemd/guard.conf what goes before one service: with our Python, and without what would take away.

    `notify_access` is NotifyAccess= of the unit as it is. With "all", which a service may need for itself, the guard
    may notify already, and "exec" would keep others from it.
    """
    own = SHIPPED_COMMAND.replace("/opt/llmhost/bin/python", _quoted(python))
    lines = [line for line in shipped.splitlines() if not line.startswith("# Install to ")]
    lines = [own if line == SHIPPED_COMMAND else line for line in lines]
    if notify_access == "all":
        lines = [
            "# left out, as the service has NotifyAccess=all" if line == _SHIPPED_NOTIFY else line for line in lines
        ]
    return "\n".join(lines) + "\n"


def _quoted(path: str) -> str:
    """Write a path as systemd reads it in a command (systemd.service(5), COMMAND LINES; systemd.unit(5))."""
    if _PLAIN.fullmatch(path):
        return path
    if not path.isprintable():
        raise UnfitError(f"systemd cannot run {path!r}: install llmhost at a path of printable characters")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
