"""What comes to a guard in trouble: readings that are late, failures, runs that begin with that.

trouble_of_driver_and_systemd.py and trouble_of_host_and_files.py are the table in docs/guard.md: by input, kind of
trouble and what follows, what comes when, with the actions that follow (as in waits.py).
"""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tests.fakes.values import GIB, gpu, report
from tests.guard.steps import (
    HOST_READ,
    OWN,
    SERVICE,
    Row,
    starting,
    state,
    used,
)

from llmhost.config.schema import Config
from llmhost.decide.guard.state import FailedLook, File, GuardState, RemedyProgress
from llmhost.model.history.history import History
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok

ROWS = ("GPU memory", "process lists", "systemd", "processes", "host", "config", "history", "/dev/shm")
COLUMNS = ("late", "fails once", "fails for good", "absent")

LATE = Failed(Cause.TIMEOUT, "reading")
ERROR = Failed(Cause.UNKNOWN, "error")
BUSY = Failed(Cause.STARTING, "reading units")
OFF_THE_BUS = Failed(Cause.NO_SYSTEMD, "no owner")
NO_PROCFS = Failed(Cause.NO_PROCFS, "no meminfo")
BUS_ERROR = Failed(Cause.BUS_ERROR, "too many")
NO_CONFIG = Failed(Cause.TIMEOUT, "silent config")
MISTAKE = Failed(Cause.MALFORMED, "mistake")
NO_HISTORY = Failed(Cause.TIMEOUT, "silent history")
UNIFIED = {"memory": used(0, memory=NotApplicable(), unified_memory=True)}
READ = {"config": Ok(Config()), "history": Ok(History())}


def looks(failed: FailedLook | None = None, **given: Any) -> Mapping[str, Any]:  # noqa: ANN401
    """Say how far the remedies are."""
    return {"remedies": RemedyProgress(began=0.0, failed=failed, **given)}


def need_unknown(timeout: float) -> GuardState:
    """Give a run in a unit's own start, of which systemd alone knows what it needs."""
    return state(OWN, timeout=timeout, may_notify=True, gpus=(), free_bytes=None)


NEED_UNKNOWN = need_unknown(100.0)
LOOKS, SETTLED = looks(), looks(settled=True)
PROCESSES_LATE = looks(FailedLook("processes are late", lasts=False))
HIDDEN = looks(FailedLook("processes are hidden", lasts=True))
SHM_LATE = looks(FailedLook("shm is late", lasts=False))
NO_SHM = looks(FailedLook("no tmpfs", lasts=True))

REAPS = state(OWN, timeout=100.0, may_notify=True)
REAPS_BY_OPTIONS = state(replace(OWN, needs_systemd=False), timeout=100.0, may_notify=True)
UNREAD = replace(REAPS, unread=frozenset(File))
REFUSES = replace(UNREAD, refuses_on_fault=True)
NEEDS_SHM = state(shm_bytes=16 * GIB, timeout=2.0)
PASSES = {**HOST_READ, **starting()}

EMPTY = {"memory": used(0.5)}
UNLISTED = {"memory": Ok(report([gpu(1)]))}
GROWING = {"memory": Ok(report([gpu(1), gpu(2)]))}
ALL_NEED_UNKNOWN = state(SERVICE, timeout=100.0, gpus=(), free_bytes=None)

Key: TypeAlias = tuple[str, str, str]  # row, column, and what follows
Wait: TypeAlias = tuple[GuardState, tuple[Row, ...]]
