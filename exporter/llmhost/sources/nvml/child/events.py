"""XID events: errors of a GPU that the driver reports once, as they come, to those who wait for them (nvml.h).

A thread of the child waits, and nobody waits for it. It leaves `current_call` to the thread that answers. A GPU that
does not let itself be watched costs the others nothing.
"""

import contextlib
import ctypes
import threading
import time
from dataclasses import dataclass, field

from llmhost.runtime.backoff import Backoff
from llmhost.sources.nvml.child.checked_calls import NO_SUCH_CALL
from llmhost.sources.nvml.child.driver import TEXT_BYTES, Handle, Library
from llmhost.sources.nvml.child.structs import EventData
from llmhost.sources.nvml.codes import Code, NvmlCallError
from llmhost.sources.nvml.xid_counters import XidCounterWriter, XidKey

_OLD_WAIT = "nvmlEventSetWait"  # the same but for the MIG instance
_XID_CRITICAL_ERROR = 8  # nvmlEventTypeXidCriticalError
_SHORTEST_WAIT_SECONDS = 0.05  # while GPUs are being found
_LONGEST_WAIT_SECONDS = 1.0
_REFUSED_SECONDS = 60.0  # until a GPU that did not let itself be registered is asked again
_IDLE_SECONDS = 0.1  # after a wait that came back too soon, with nothing
_PAUSE_SECONDS = (1.0, 30.0)  # after an error, first and most
_MOST_ERRORS = 3  # in a row, until the event set is replaced: what it still holds is lost with it


@dataclass(slots=True)
class _Set:
    """An nvmlEventSet_t and the GPUs registered in it: UUIDs by handle, as an event has the handle."""

    handle: ctypes.c_void_p
    registered: dict[int, str] = field(default_factory=dict)


class EventWatch:
    """One NVML session's events, counted into memory that the exporter reads."""

    def __init__(self, library: Library, counters: XidCounterWriter) -> None:
        """Start nothing yet."""
        self._library = library
        self._counters = counters
        self._lock = threading.Lock()
        self._gpus: dict[str, int] = {}  # UUID to handle
        self._news = threading.Event()
        self._stopping = threading.Event()
        self._refused_until: dict[int, float] = {}  # by handle
        self._pauses = Backoff(*_PAUSE_SECONDS)
        self._waiting_call = "nvmlEventSetWait_v2"
        self._wait_seconds = _SHORTEST_WAIT_SECONDS
        self._thread: threading.Thread | None = None

    def add(self, uuid: str, device: Handle) -> None:
        """Watch a GPU, from soon on; returns at once."""
        if device.value is None:
            return
        with self._lock:
            if self._gpus.get(uuid) == device.value:
                return
            self._gpus[uuid] = device.value
        self._news.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="llmhost-nvml-events", daemon=True)
            self._thread.start()

    def stop(self, within_seconds: float) -> bool:
        """Stop watching; False if the thread has not come back from the library, whose session must not end then."""
        self._stopping.set()
        self._news.set()
        if self._thread is None:
            return True
        self._thread.join(within_seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                watched = _Set(ctypes.c_void_p())
                self._call("nvmlEventSetCreate", ctypes.byref(watched.handle))
            except NvmlCallError as error:
                if error.code in NO_SUCH_CALL:
                    return  # a library that is too old for it
                self._pause()
                continue
            try:
                self._count(watched)
            except NvmlCallError as error:
                if error.code in NO_SUCH_CALL:
                    return
            finally:
                with contextlib.suppress(NvmlCallError):
                    self._call("nvmlEventSetFree", watched.handle)

    def _count(self, watched: _Set) -> None:
        """Count until it is time to stop, or until the set is good for nothing: then raise NvmlCallError."""
        errors = 0
        while not self._stopping.is_set():
            self._news.clear()
            self._register(watched)
            if not watched.registered:
                self._news.wait(_REFUSED_SECONDS)  # an empty set is not to be waited for
                continue
            try:
                self._wait(watched)
                errors = 0
                self._pauses.reset()
            except NvmlCallError as error:
                # One GPU that is lost may fail each wait at once, for ever: neither spin, nor lose what is in the set
                # before that is sure.
                if error.code in NO_SUCH_CALL:
                    if self._waiting_call == _OLD_WAIT:
                        raise
                    self._waiting_call = _OLD_WAIT
                    continue
                errors += 1
                self._pause()
                if errors >= _MOST_ERRORS:
                    raise

    def _register(self, watched: _Set) -> None:
        with self._lock:
            gpus = list(self._gpus.items())
        now = time.monotonic()
        for uuid, device in gpus:
            if device in watched.registered or now < self._refused_until.get(device, 0.0):
                continue
            types = ctypes.c_uint64(_XID_CRITICAL_ERROR)
            try:
                self._call("nvmlDeviceRegisterEvents", ctypes.c_void_p(device), types, watched.handle)
            except NvmlCallError as error:
                self._refused_until[device] = now + _REFUSED_SECONDS
                if error.code == Code.UNKNOWN:  # the set is in an undefined state and should be freed (nvml.h)
                    raise
                continue
            watched.registered[device] = uuid
            self._wait_seconds = _SHORTEST_WAIT_SECONDS

    def _wait(self, watched: _Set) -> None:
        """Wait for one event, for a limited time. Raises NvmlCallError for all but that none came."""
        event = EventData()
        began = time.monotonic()
        milliseconds = ctypes.c_uint(int(self._wait_seconds * 1000))
        try:
            self._call(self._waiting_call, watched.handle, ctypes.byref(event), milliseconds)
        except NvmlCallError as error:
            if error.code != Code.TIMEOUT:
                raise
            if time.monotonic() - began < self._wait_seconds / 2:
                self._stopping.wait(_IDLE_SECONDS)
            self._wait_seconds = min(2 * self._wait_seconds, _LONGEST_WAIT_SECONDS)
            return
        # The handle is that of the registration, and a GPU that is lost by now cannot be asked.
        uuid = watched.registered.get(event.device) or self._uuid(event.device)
        if event.type != _XID_CRITICAL_ERROR or uuid is None:
            self._stopping.wait(_IDLE_SECONDS)
            return
        self._counters.add(XidKey(uuid, event.data), time.time())

    def _uuid(self, device: int) -> str | None:
        text = ctypes.create_string_buffer(TEXT_BYTES)
        with contextlib.suppress(NvmlCallError):
            self._call("nvmlDeviceGetUUID", ctypes.c_void_p(device), text, ctypes.c_uint(TEXT_BYTES))
            return text.value.decode(errors="replace")
        return None

    def _pause(self) -> None:
        self._stopping.wait(self._pauses.next_seconds())

    def _call(self, call: str, *arguments: object) -> None:
        code = self._library.function(call)(*arguments)
        if code:
            raise NvmlCallError(call, code)
