"""The text of the drop-in that puts the guard before a service. Pure."""

import math
import re
from collections.abc import Mapping

# systemd/guard.conf has these lines; a test holds it to that.
SHIPPED_COMMAND = "ExecStartPre=+/opt/llmhost/bin/python -I -m llmhost guard"
_SHIPPED_NOTIFY = "NotifyAccess=exec"
_SPANS = ("TimeoutStartSec", "RestartSec")
# systemd.time(7); what `systemctl show` writes of them.
_UNITS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN_PART = re.compile(r"([0-9.]+)([a-z]+)")
_PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")


class UnfitError(Exception):
    """The installation cannot be named in a unit file. str() is one line."""


def guard_drop_in_text(
    shipped: str, python: str, notify_access: str, *, timeout_start: str = "", restart: str = ""
) -> str:
    """Adapt systemd/guard.conf to one service: with this Python, and without lines that would weaken its settings.

    The others are the unit's NotifyAccess=, TimeoutStartSec= and RestartSec=, as `systemctl show` has them.
    With NotifyAccess=all, which a service may need for itself, the guard may notify already, and "exec" would keep
    others from it. Times that are longer than ours stay: with Type=notify a model must load within the first.
    """
    own = SHIPPED_COMMAND.replace("/opt/llmhost/bin/python", _quoted(python))
    lines = [line for line in shipped.splitlines() if not line.startswith("# Install to ")]
    lines = [own if line == SHIPPED_COMMAND else line for line in lines]
    if notify_access == "all":
        lines = [
            "# left out, as the service has NotifyAccess=all" if line == _SHIPPED_NOTIFY else line for line in lines
        ]
    has = dict(zip(_SPANS, (timeout_start, restart), strict=True))
    return "\n".join(_kept_if_longer(line, has) for line in lines) + "\n"


def _kept_if_longer(line: str, has: Mapping[str, str]) -> str:
    name, _, ours = line.partition("=")
    own = has.get(name, "")
    if span_seconds(own) > span_seconds(ours):
        return f"# left out, as the service has {name}={own}"
    return line


def span_seconds(text: str) -> float:
    """Read a time span such as "1min 30s" or "infinity"; 0.0 where it is none that we know."""
    if text == "infinity":
        return math.inf
    parts = [_SPAN_PART.fullmatch(part) for part in text.split()]
    if not all(part is not None and part[2] in _UNITS for part in parts):
        return 0.0
    return math.fsum(float(part[1]) * _UNITS[part[2]] for part in parts if part is not None)


def _quoted(path: str) -> str:
    """Write a path as systemd reads it in a command (systemd.service(5), COMMAND LINES; systemd.unit(5))."""
    if _PLAIN.fullmatch(path):
        return path
    if not path.isprintable():
        raise UnfitError(f"systemd cannot run {path!r}: install llmhost at a path of printable characters")
    escaped = path.replace("\\", "\\\\").replace('"', '\\"').replace("%", "%%").replace("$", "$$")
    return f'"{escaped}"'
