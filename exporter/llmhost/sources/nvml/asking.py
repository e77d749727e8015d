"""What an error in one NVML call means for the calls to come, and for the GPU."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from llmhost.sources.nvml.codes import HARMLESS, LOST, Code, NvmlCallError

T = TypeVar("T")

NO_SUCH_CALL = frozenset({Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH})


@dataclass(frozen=True, slots=True)
class Subject:
    """A device as far as what it supports goes: that changes when MIG is switched."""

    uuid: str
    mig: bool = False


class Asking:
    """Calls within one NVML session: what is not supported is not asked again, and how a GPU fares is noted."""

    def __init__(self) -> None:
        self._unsupported: dict[tuple[Subject, str], NvmlCallError] = {}
        self._answered = False
        self._failed: NvmlCallError | None = None

    def begin(self) -> None:
        """Start to note how a GPU fares."""
        self._answered = False
        self._failed = None

    @property
    def failed(self) -> NvmlCallError | None:
        """The first error since `begin` that tells of the GPU's health and not of the call's."""
        return self._failed

    @property
    def dead(self) -> NvmlCallError | None:
        """The first such error if since `begin` nothing was answered at all."""
        return None if self._answered else self._failed

    def ask(self, subject: Subject, what: str, call: Callable[[], T]) -> T | NvmlCallError:
        """Make a call; `what` names it. An error is a value, but for a GPU that is lost: that one is raised."""
        known = self._unsupported.get((subject, what))
        if known is not None:
            return known
        try:
            value = call()
        except NvmlCallError as error:
            if error.code in LOST:
                raise
            if error.code in NO_SUCH_CALL:
                self._unsupported[subject, what] = error
            if error.code not in HARMLESS and self._failed is None:
                self._failed = error
            return error
        self._answered = True
        return value

    def optional(self, subject: Subject, what: str, call: Callable[[], T]) -> T | None:
        value = self.ask(subject, what, call)
        return None if isinstance(value, NvmlCallError) else value
