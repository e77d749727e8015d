"""The unit of a guard that cannot see its own cgroup: with ProtectControlGroups=private or strict it sees `0::/`."""

import logging
import os
import time

from llmhost.assemble.sources import Sources, guard_config
from llmhost.config.schema import Config
from llmhost.guard.ending_signals import ENDING_SIGNALS
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause
from llmhost.runtime.bounded_call import BoundedCall
from llmhost.sources.base import SourceError
from llmhost.sources.sd_notify import Notifier

log = logging.getLogger(__name__)

_ASK_SECONDS = 20.0  # for an answer of a systemd that is busy
_SURE_SECONDS = 3.0  # that there is no systemd to ask, on end
_AGAIN_SECONDS = 0.1
_LOOK_SECONDS = 0.5  # for signals, and between two requests for more time
_EXTENSION_SECONDS = 10.0
_ABSENT = frozenset({Cause.NO_BUS, Cause.NO_SYSTEMD})
_HIDDEN = "systemd has started this, and its own cgroup is hidden from it, as by ProtectControlGroups="
_REMEDY = 'write "+" before the guard: ExecStartPre=+…'


def hidden_unit(sources: Sources) -> tuple[UnitId | None, str]:
    """Ask systemd for the unit that this runs in, if systemd has started it; else there is none.

    Where systemd cannot be asked, the second value says so: this is no guard that was started by hand.
    """
    if not os.environ.get("INVOCATION_ID"):  # systemd.exec(5)
        return None, ""
    sources.configure(guard_config(Config(), ()))
    try:
        name = _own_unit(sources)
    except SourceError as error:
        return None, f"{_HIDDEN}, and systemd cannot be asked for its unit ({error}): {_REMEDY}"
    if name is None or not name.endswith(".service") or name.startswith("user@"):
        return None, ""
    log.warning("%s; so are those of other processes, and whose they are: %s", _HIDDEN, _REMEDY)
    return UnitId(name), ""


def _own_unit(sources: Sources) -> str | None:
    """Ask systemd, and again for a while, with more time from it meanwhile. Raises SourceError; also after a signal."""
    began, notifier = time.monotonic(), Notifier()
    asking: BoundedCall[str | None] | None = None
    while not ENDING_SIGNALS.first:
        notifier.extend(_EXTENSION_SECONDS)
        asking = asking or BoundedCall(lambda: sources.systemd.own_unit(began + _ASK_SECONDS), name="llmhost-unit")
        try:
            return asking.result(time.monotonic() + _LOOK_SECONDS)
        except TimeoutError:
            continue
        except SourceError as error:
            if time.monotonic() - began >= (_SURE_SECONDS if error.cause in _ABSENT else _ASK_SECONDS):
                raise
        asking = None
        time.sleep(_AGAIN_SECONDS)
    raise SourceError(Cause.UNKNOWN, f"ended by {ENDING_SIGNALS.name}")
