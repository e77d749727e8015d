"""NVML calls about one GPU, whose errors are values, and tell of the GPU or of the call."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from llmhost.sources.nvml.codes import HARMLESS, LOST, Code, NvmlCallError

T = TypeVar("T")

NO_SUCH_CALL = frozenset({Code.NOT_SUPPORTED, Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH})


@dataclass(frozen=True, slots=True)
class Subject:
    """A device, for the calls that it supports: these change when MIG is switched."""

    uuid: str
    mig: bool = False


@dataclass(frozen=True, slots=True)
class _Unsupported:
    error: NvmlCallError
    until: float


class CheckedCalls:
    """Calls within one NVML session.

    An unsupported call is not made again for a while. Errors that tell of a GPU's health are noted.
    """

    def __init__(self, unsupported_seconds: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._unsupported_seconds = unsupported_seconds
        self._monotonic = monotonic
        self._unsupported: dict[tuple[Subject, str], _Unsupported] = {}
        self._answered = False
        self._failure: NvmlCallError | None = None

    def begin_gpu(self) -> None:
        """Forget the failures of the GPU before."""
        self._answered = False
        self._failure = None

    @property
    def failure(self) -> NvmlCallError | None:
        """The first error since `begin_gpu` that tells of the GPU's health and not of the call's."""
        return self._failure

    @property
    def total_failure(self) -> NvmlCallError | None:
        """The first such error if since `begin_gpu` nothing was answered at all."""
        return None if self._answered else self._failure

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
            if error.code not in HARMLESS and self._failure is None:
                self._failure = error
            return error
        self._answered = True
        return value

    def optional(
        self, subject: Subject, what: str, call: Callable[[], T], at_most_seconds: float | None = None
    ) -> T | None:
        value = self.ask(subject, what, call, at_most_seconds)
        return None if isinstance(value, NvmlCallError) else value
