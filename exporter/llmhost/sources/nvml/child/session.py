"""One NVML session: begun, asked, and begun anew when it is broken."""

import contextlib
import re
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmhost.sources.nvml.child.checked_calls import CheckedCalls
from llmhost.sources.nvml.child.driver import Driver
from llmhost.sources.nvml.child.events import EventWatch
from llmhost.sources.nvml.child.gpu_scan import GpuScan, Skip
from llmhost.sources.nvml.codes import SESSION_BROKEN, NvmlCallError
from llmhost.sources.nvml.wire import Answer, Question

_LIBRARY = re.compile(r"/\S.*/libnvidia-ml\.so[.\d]*")
_VERSIONED = re.compile(r"libnvidia-ml\.so\.(\d+(?:\.\d+)+)")
_LINK = "libnvidia-ml.so.1"
_RENEW_SECONDS = 10.0  # between one nvmlInit that fixed nothing and the next
_STOP_SECONDS = 1.5  # for the thread that waits for events, at most 1 s a time


@dataclass(frozen=True, slots=True)
class Versions:
    """Versions of the driver and of its library.

    A driver package installs libnvidia-ml.so.VERSION and points the symlink libnvidia-ml.so.1 at it. An upgrade under a
    running system changes the symlink while processes keep the old file and the kernel keeps the old module: what runs
    goes on, and what starts next fails with LIB_RM_VERSION_MISMATCH.
    """

    driver: str  # "" where it is not known
    nvml: str
    library: str | None
    library_on_disk: str | None


class SessionBrokenError(NvmlCallError):
    """The session as a whole answers that it is broken."""


class NvmlSession:
    """One nvmlInit and what is learnt under it; begun anew when all GPUs say that it is broken.

    If a new nvmlInit succeeds and fixes nothing, the session is none the worse for it: then it is the GPUs that fail.
    """

    def __init__(
        self, driver: Driver, new_watch: Callable[[], EventWatch], procfs: Path, unsupported_seconds: float
    ) -> None:
        self._driver = driver
        self._new_watch = new_watch
        self._procfs = procfs
        self._unsupported_seconds = unsupported_seconds
        self._scan: GpuScan | None = None
        self._watch: EventWatch | None = None
        self._versions: Versions | None = None
        self._renew_at = 0.0

    def answer(self, question: Question) -> Answer:
        """Answer; with `failed` set, NVML does not work and this process should end."""
        self._driver.about()
        try:
            try:
                return self._scan_gpus(question, tolerate=time.monotonic() < self._renew_at)
            except SessionBrokenError:
                self._scan = None
                self._driver.about()
                if self._watch is not None and not self._watch.stop(_STOP_SECONDS):
                    raise  # shutting down under a call is not safe; a new process is
                with contextlib.suppress(NvmlCallError):
                    self._driver.shutdown()
                self._renew_at = time.monotonic() + _RENEW_SECONDS
                return self._scan_gpus(question, tolerate=True)
        except NvmlCallError as error:
            return _answer(question, error, Versions("", "", *read_library_versions()))

    def _scan_gpus(self, question: Question, *, tolerate: bool) -> Answer:
        """Ask the driver; raise SessionBrokenError where all GPUs say so, unless it is tolerated."""
        if self._scan is None:
            self._driver.init()
            self._watch = self._new_watch()
            self._scan = GpuScan(self._driver, self._procfs, CheckedCalls(self._unsupported_seconds), self._watch.add)
        self._driver.about()
        try:
            listed = self._driver.count()
        except NvmlCallError as error:
            raise SessionBrokenError(error.call, error.code) if error.code in SESSION_BROKEN else error from None
        if self._versions is None or question["extent"] != "memory_alone":
            self._versions = self._read_versions()
        answer = _answer(question, None, self._versions)
        answer["listed"] = listed
        answer["gpus"] = self._scan.scan(listed, _to_skip(question, listed), question["extent"])
        broken = self._scan.broken()
        if broken is not None and not tolerate:
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


def parse_mapped_library(maps: str) -> Path | None:
    """Find the library in the text of /proc/PID/maps (proc_pid_maps(5); a replaced file is marked "(deleted)")."""
    for line in maps.splitlines():
        found = _LIBRARY.search(line)
        if found:
            return Path(found.group())
    return None


def version_of(library: Path) -> str | None:
    """Take the version from the file's name; None for a plain libnvidia-ml.so.1, as WSL has it."""
    found = _VERSIONED.fullmatch(library.name)
    return found.group(1) if found else None


def read_library_versions(maps: Path = Path("/proc/self/maps")) -> tuple[str | None, str | None]:
    """Return the version of the library that is mapped, and of the one beside it that the next process will load."""
    try:
        mapped = parse_mapped_library(maps.read_text(errors="surrogateescape"))
    except OSError:
        return None, None
    if mapped is None:
        return None, None
    try:
        on_disk = (mapped.parent / _LINK).resolve(strict=True)
    except OSError:
        return version_of(mapped), None
    return version_of(mapped), version_of(on_disk)
