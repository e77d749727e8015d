"""The NVML call that the child is in, in memory that it shares with the exporter.

Written by the child before each call, read by the exporter: a call into a hung driver does not come back, so the child
cannot report it. One writer, one reader; a sequence number, odd during a write, shows the reader that it read a half.
"""

import mmap
import os
import struct
import time
from dataclasses import dataclass

_NOTE = struct.Struct("=id64s96s")  # GPU index or -1, CLOCK_MONOTONIC seconds, name, UUID
_SEQUENCE = struct.Struct("=Q")
_SIZE = _SEQUENCE.size + _NOTE.size
NO_GPU = -1


@dataclass(frozen=True, slots=True)
class CurrentCall:
    name: str  # of an NVML function
    gpu: int | None  # NVML index; None for a call about no GPU
    since: float  # time.monotonic() seconds; the clock is the same in all processes
    uuid: str | None = None  # of the GPU, once it is known: its index is another after a restart of the driver


def create() -> int:
    """Return a memfd to be shared with a child."""
    fd = os.memfd_create("llmhost-nvml-current-call", os.MFD_CLOEXEC)
    os.ftruncate(fd, _SIZE)
    return fd


class CurrentCallWriter:
    """The child's end."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _SIZE)
        self._sequence = 0

    def note(self, call: str, gpu: int = NO_GPU, uuid: str = "") -> None:
        self._sequence += 2
        _SEQUENCE.pack_into(self._map, 0, self._sequence - 1)
        _NOTE.pack_into(self._map, _SEQUENCE.size, gpu, time.monotonic(), call.encode(), uuid.encode())
        _SEQUENCE.pack_into(self._map, 0, self._sequence)

    def idle(self) -> None:
        self.note("")


class CurrentCallReader:
    """The exporter's end."""

    def __init__(self, fd: int) -> None:
        self._map = mmap.mmap(fd, _SIZE, access=mmap.ACCESS_READ)

    def read(self) -> CurrentCall | None:
        """Return the call that is being made; None when there is none (idle, or still starting)."""
        for _ in range(10):
            (before,) = _SEQUENCE.unpack_from(self._map, 0)
            gpu, since, call, uuid = _NOTE.unpack_from(self._map, _SEQUENCE.size)
            (after,) = _SEQUENCE.unpack_from(self._map, 0)
            if before == after and before % 2 == 0:
                name = _text(call)
                return CurrentCall(name, None if gpu == NO_GPU else gpu, since, _text(uuid) or None) if name else None
        return None

    def close(self) -> None:
        self._map.close()


def _text(padded: bytes) -> str:
    return padded.rstrip(b"\0").decode(errors="replace")
