"""The text of the drop-in that puts the guard before a service. Pure."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

# systemd/guard.conf has these lines; a test holds it to that.
_SHIPPED_PYTHON = "/opt/llmhost/bin/python"
_SHIPPED_PREFIX = "ExecStartPre=+"
_LIMIT_SECONDS = 7200.0  # StartLimitIntervalSec=2h
_SHIPPED_NOTIFY = "NotifyAccess=exec"
# systemd.time(7); what `systemctl show` writes of them.
_UNITS: Mapping[str, float] = {"us": 1e-6, "ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400, "w": 604800}
_SPAN_PART = re.compile(r"([0-9.]+)([a-z]+)")
_PLAIN = re.compile(r"[A-Za-z0-9/._+-]+")


class UnfitError(Exception):
    """The installation cannot be named in a unit file. str() is one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnSettings:
    """A service's own settings, as `systemctl show` writes them; "" where one is not known."""

    notify_access: str = ""
    timeout_start: str = ""
    restart_delay: str = ""
    start_limit_interval: str = ""
    start_limit_burst: str = ""

    @property
    def keeps_start_limit(self) -> bool:
        """Tell if its start limit is off, which is on purpose, as systemd's default is one; or longer than ours."""
        is_off = "0" in {self.start_limit_interval, self.start_limit_burst}
        return is_off or span_seconds(self.start_limit_interval) > _LIMIT_SECONDS


def guard_drop_in_text(shipped: str, python: str, own: OwnSettings, *, as_user: bool = False) -> str:
    """Adapt systemd/guard.conf to one service: with this Python, and without lines that would weaken its settings.

    With NotifyAccess=all, which a service may need for itself, the guard may notify already, and "exec" would keep
    others from it. Times that are longer than ours stay: with Type=notify a model must load within the first. A start
    limit that is off on purpose stays off.
    """
    return "\n".join(_lines(shipped, python, own, as_user=as_user)) + "\n"


def _lines(shipped: str, python: str, own: OwnSettings, *, as_user: bool) -> Iterator[str]:
    for line in shipped.splitlines():
        name, _, ours = line.partition("=")
        if line.startswith("# Install to "):
            continue
        if line.startswith(_SHIPPED_PREFIX):
            yield line.replace("=+", "=", 1) if as_user else line
        elif line.startswith(_SHIPPED_PYTHON):
            yield line.replace(_SHIPPED_PYTHON, _quoted(python))
        elif line == _SHIPPED_NOTIFY and own.notify_access == "all":
            yield "# left out, as the service has NotifyAccess=all"
        elif name.startswith("StartLimit") and own.keeps_start_limit:
            limit = f"StartLimitIntervalSec={own.start_limit_interval} StartLimitBurst={own.start_limit_burst}"
            yield f"# left out, as the service has {limit}: {line}"
        elif has := _longer(name, ours, own):
            yield f"# left out, as the service has {name}={has}"
        else:
            yield line


def _longer(name: str, ours: str, own: OwnSettings) -> str:
    """Give the service's own time where it is longer than ours."""
    has = {"TimeoutStartSec": own.timeout_start, "RestartSec": own.restart_delay}.get(name, "")
    return has if span_seconds(has) > span_seconds(ours) else ""


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
