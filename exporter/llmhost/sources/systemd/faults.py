"""Why a session ended, or a read failed, as the reading tells it."""

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.systemd.bus import BusClosedError, CallFailedError, CallTimeoutError
from llmhost.sources.systemd.opening import BusUnreachableError
from llmhost.sources.systemd.parse import UnreadableUnitError

_CAUSES = (
    (BusUnreachableError, Cause.NO_BUS),
    (BusClosedError, Cause.NO_BUS),  # before the others: they follow from it
    (CallTimeoutError, Cause.TIMEOUT),
    (CallFailedError, Cause.BUS_ERROR),
    (UnreadableUnitError, Cause.BUS_ERROR),
)


def fault_of(error: BaseException) -> SourceError:
    leaves = _leaves(error)
    for kind, cause in _CAUSES:
        for leaf in leaves:
            if isinstance(leaf, kind):
                return SourceError(cause, str(leaf))
    return SourceError(Cause.UNKNOWN, repr(leaves[0]))


def _leaves(error: BaseException) -> list[BaseException]:
    if isinstance(error, BaseExceptionGroup):
        return [leaf for inner in error.exceptions for leaf in _leaves(inner)]
    return [error]
