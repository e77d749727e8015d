"""One NVML session: begun, asked, and begun anew when it is broken."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import TYPE_CHECKING

from llmhost.sources.nvml.asking import Asking
from llmhost.sources.nvml.codes import SESSION_BROKEN, NvmlCallError
from llmhost.sources.nvml.library import read_library_versions
from llmhost.sources.nvml.survey import Skip, Survey
from llmhost.sources.nvml.wire import Answer, Question

if TYPE_CHECKING:  # the worker imports us, and is __main__
    from llmhost.sources.nvml.worker import Driver

_RENEW_SECONDS = 10.0  # how soon after one nvmlInit that mended nothing the next is tried


class SessionBrokenError(NvmlCallError):
    """The session as a whole answers that it is broken."""


class Session:
    """One nvmlInit and what is learnt under it; begun anew when all GPUs say that it is broken.

    If a new nvmlInit succeeds and mends nothing, the session is none the worse for it: then it is the GPUs that fail.
    """

    def __init__(self, driver: Driver, procfs: Path, unsupported_seconds: float) -> None:
        self._driver = driver
        self._procfs = procfs
        self._unsupported_seconds = unsupported_seconds
        self._survey: Survey | None = None
        self._renew_at = 0.0

    def answer(self, question: Question) -> Answer:
        """Answer; with `failed` set, NVML does not work and this process should end."""
        self._driver.about()
        try:
            try:
                return self._look(question, put_up=time.monotonic() < self._renew_at)
            except SessionBrokenError:
                self._survey = None
                self._driver.about()
                with contextlib.suppress(NvmlCallError):
                    self._driver.shutdown()
                self._renew_at = time.monotonic() + _RENEW_SECONDS
                return self._look(question, put_up=True)
        except NvmlCallError as error:
            return _answer(question, error)

    def _look(self, question: Question, *, put_up: bool) -> Answer:
        """Ask the driver; `put_up` with GPUs that all say that the session is broken, or raise SessionBrokenError."""
        if self._survey is None:
            self._driver.init()
            self._survey = Survey(self._driver, self._procfs, Asking(self._unsupported_seconds))
        self._driver.about()
        try:
            listed = self._driver.count()
        except NvmlCallError as error:
            raise SessionBrokenError(error.call, error.code) if error.code in SESSION_BROKEN else error from None
        answer = _answer(question, None)
        answer["listed"] = listed
        with contextlib.suppress(NvmlCallError):
            answer["driver_version"] = self._driver.driver_version()
        with contextlib.suppress(NvmlCallError):
            answer["nvml_version"] = self._driver.nvml_version()
        look = self._survey.look if question["lists"] else self._survey.look_at_memory
        answer["gpus"] = look(listed, _to_skip(question, listed))
        broken = self._survey.broken()
        if broken is not None and not put_up:
            raise SessionBrokenError(broken["call"], broken["code"])
        return answer


def _to_skip(question: Question, listed: int) -> Skip:
    return Skip(
        indexes=frozenset(
            gpu["index"]
            for gpu in question["skip"]
            if gpu["index"] is not None and (gpu["uuid"] is None or listed == question["listed"])
        ),
        uuids=frozenset(gpu["uuid"] for gpu in question["skip"] if gpu["uuid"] is not None),
    )


def _answer(question: Question, failed: NvmlCallError | None) -> Answer:
    loaded, on_disk = read_library_versions()
    return Answer(
        id=question["id"],
        failed=None if failed is None else {"call": failed.call, "code": failed.code},
        driver_version="",
        nvml_version="",
        library_version=loaded,
        library_on_disk_version=on_disk,
        listed=0,
        gpus=[],
    )
