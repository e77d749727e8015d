"""What an error in one NVML call means for the calls to come, and for the GPU."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from llmhost.sources.nvml.codes import HARMLESS, LOST, Code, NvmlCallError

T = TypeVar("T")

NO_SUCH_CALL = frozenset({Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH})
UNSUPPORTED_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class Subject:
    """A device as far as what it supports goes: that changes when MIG is switched."""

    uuid: str
    mig: bool = False


@dataclass(frozen=True, slots=True)
class _Unsupported:
    error: NvmlCallError
    until: float


class Asking:
    """Calls within one NVML session: what is not supported is not asked again for a while; how a GPU fares is noted."""

    def __init__(
        self, unsupported_seconds: float = UNSUPPORTED_SECONDS, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._unsupported_seconds = unsupported_seconds
        self._monotonic = monotonic
        self._unsupported: dict[tuple[Subject, str], _Unsupported] = {}
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

    def ask(
        self, subject: Subject, what: str, call: Callable[[], T], at_most_seconds: float | None = None
    ) -> T | NvmlCallError:
        """Make a call; `what` names it. An error is a value, but for a GPU that is lost: that one is raised.

        `at_most_seconds` is for a call that may become supported sooner than others.
        """
        now = self._monotonic()
        known = self._unsupported.get((subject, what))
        if known is not None and now < known.until:
            return known.error
        try:
            value = call()
        except NvmlCallError as error:
            if error.code in LOST:
                raise
            if error.code in NO_SUCH_CALL:
                seconds = min(self._unsupported_seconds, at_most_seconds or self._unsupported_seconds)
                kept = {key: known for key, known in self._unsupported.items() if now < known.until}
                self._unsupported = {**kept, (subject, what): _Unsupported(error, now + seconds)}
            if error.code not in HARMLESS and self._failed is None:
                self._failed = error
            return error
        self._answered = True
        return value

    def optional(
        self, subject: Subject, what: str, call: Callable[[], T], at_most_seconds: float | None = None
    ) -> T | None:
        value = self.ask(subject, what, call, at_most_seconds)
        return None if isinstance(value, NvmlCallError) else value
