"""One NVML session: begun, asked, and begun anew when it is broken."""

import contextlib
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmhost.sources.nvml.child.asking import Asking
from llmhost.sources.nvml.child.driver import Driver
from llmhost.sources.nvml.child.events import EventWatch
from llmhost.sources.nvml.child.gpu_scan import Skip, Survey
from llmhost.sources.nvml.codes import SESSION_BROKEN, NvmlCallError
from llmhost.sources.nvml.library import read_library_versions
from llmhost.sources.nvml.wire import Answer, Question

_RENEW_SECONDS = 10.0  # how soon after one nvmlInit that mended nothing the next is tried
_STOP_SECONDS = 1.5  # for the thread that waits for events, at most 1 s a time


@dataclass(frozen=True, slots=True)
class Versions:
    driver: str  # "" where it does not tell
    nvml: str
    library: str | None
    library_on_disk: str | None


class SessionBrokenError(NvmlCallError):
    """The session as a whole answers that it is broken."""


class Session:
    """One nvmlInit and what is learnt under it; begun anew when all GPUs say that it is broken.

    If a new nvmlInit succeeds and mends nothing, the session is none the worse for it: then it is the GPUs that fail.
    """

    def __init__(
        self, driver: Driver, new_watch: Callable[[], EventWatch], procfs: Path, unsupported_seconds: float
    ) -> None:
        self._driver = driver
        self._new_watch = new_watch
        self._procfs = procfs
        self._unsupported_seconds = unsupported_seconds
        self._survey: Survey | None = None
        self._watch: EventWatch | None = None
        self._versions: Versions | None = None
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
                if self._watch is not None and not self._watch.stop(_STOP_SECONDS):
                    raise  # shutting down under a call is not safe; a new process is
                with contextlib.suppress(NvmlCallError):
                    self._driver.shutdown()
                self._renew_at = time.monotonic() + _RENEW_SECONDS
                return self._look(question, put_up=True)
        except NvmlCallError as error:
            return _answer(question, error, Versions("", "", *read_library_versions()))

    def _look(self, question: Question, *, put_up: bool) -> Answer:
        """Ask the driver; `put_up` with GPUs that all say that the session is broken, or raise SessionBrokenError."""
        if self._survey is None:
            self._driver.init()
            self._watch = self._new_watch()
            self._survey = Survey(self._driver, self._procfs, Asking(self._unsupported_seconds), self._watch.add)
        self._driver.about()
        try:
            listed = self._driver.count()
        except NvmlCallError as error:
            raise SessionBrokenError(error.call, error.code) if error.code in SESSION_BROKEN else error from None
        if self._versions is None or question["extent"] != "memory_alone":
            self._versions = self._read_versions()
        answer = _answer(question, None, self._versions)
        answer["listed"] = listed
        skip = _to_skip(question, listed)
        if question["extent"] == "everything":
            answer["gpus"] = self._survey.look(listed, skip)
        else:
            answer["gpus"] = self._survey.look_at_memory(listed, skip, alone=question["extent"] == "memory_alone")
        broken = self._survey.broken()
        if broken is not None and not put_up:
            raise SessionBrokenError(broken["call"], broken["code"])
        return answer

    def _read_versions(self) -> Versions:
        loaded, on_disk = read_library_versions()
        driver = nvml = ""
        with contextlib.suppress(NvmlCallError):
            driver = self._driver.driver_version()
        with contextlib.suppress(NvmlCallError):
            nvml = self._driver.nvml_version()
        return Versions(driver, nvml, loaded, on_disk)


def _to_skip(question: Question, listed: int) -> Skip:
    return Skip(
        indexes=frozenset(
            gpu["index"]
            for gpu in question["skip"]
            if gpu["index"] is not None and (gpu["uuid"] is None or listed == question["listed"])
        ),
        uuids=frozenset(gpu["uuid"] for gpu in question["skip"] if gpu["uuid"] is not None),
    )


def _answer(question: Question, failed: NvmlCallError | None, versions: Versions) -> Answer:
    return Answer(
        id=question["id"],
        failed=None if failed is None else {"call": failed.call, "code": failed.code},
        driver_version=versions.driver,
        nvml_version=versions.nvml,
        library_version=versions.library,
        library_on_disk_version=versions.library_on_disk,
        listed=0,
        gpus=[],
    )
