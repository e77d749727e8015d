"""What systemd-logind does to the shared memory of people: org.freedesktop.login1(5), logind.conf(5), login.defs(5)."""

import asyncio
import re
from pathlib import Path

from llmhost.model.unit import Logind
from llmhost.sources.systemd.bus import BUS_DRIVER, BusClosedError, Callee, CallFailedError, CallTimeoutError, SafeBus
from llmhost.sources.systemd.calls import PROPERTIES

LOGIND = "org.freedesktop.login1"
_SECONDS = 0.5  # of a look at the whole host, for an answer that takes a millisecond
_MOST_SYSTEM_UID = 999  # where login.defs does not say: systemd's own default
_SYS_UID_MAX = re.compile(r"^\s*SYS_UID_MAX\s+([0-9]{1,9})\s*$", re.MULTILINE)


async def read_logind(bus: SafeBus, root: Path) -> Logind | None:
    """Ask it, without having it started for that; None where it does not run, answer in time, or tell."""
    try:
        async with asyncio.timeout(_SECONDS):
            (owner,) = await bus.call(BUS_DRIVER, "GetNameOwner", "s", LOGIND)
            callee = Callee(owner, "/org/freedesktop/login1", PROPERTIES)
            (removes,) = await bus.call(callee, "Get", "ss", f"{LOGIND}.Manager", "RemoveIPC")
    except (TimeoutError, CallFailedError, CallTimeoutError, BusClosedError):
        return None
    if not isinstance(removes, bool):
        return None
    return Logind(removes_ipc=removes, first_person_uid=_first_person_uid(root), lingering=_lingering(root))


def _first_person_uid(root: Path) -> int:
    try:
        said = _SYS_UID_MAX.search((root / "etc/login.defs").read_text(errors="replace"))
    except OSError:
        said = None
    return (int(said[1]) if said is not None else _MOST_SYSTEM_UID) + 1


def _lingering(root: Path) -> frozenset[str]:
    try:
        return frozenset(path.name for path in (root / "var/lib/systemd/linger").iterdir())
    except OSError:
        return frozenset()
