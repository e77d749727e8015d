"""Files of the host's shared memory tmpfs, /dev/shm."""

from dataclasses import dataclass
from enum import StrEnum

from llmhost.model.ids import ProcessId


@dataclass(frozen=True, slots=True, order=True)
class SegmentId:
    """Names lie: a live semaphore is mapped by another, deleted name. Device and inode do not."""

    device: int
    inode: int


class SegmentKind(StrEnum):
    """The maker of segments of such a name. The values are label values."""

    PYTHON_SHM = "python_shm"  # multiprocessing.shared_memory, psm_*
    SEMAPHORE = "semaphore"  # POSIX semaphores of multiprocessing, sem.mp-*
    NCCL = "nccl"
    TORCH = "torch"
    VLLM = "vllm"
    SGLANG = "sglang"
    CUDA = "cuda"  # CUDA IPC and MPS: reported only, never cleaned
    OPENMP = "openmp"
    LOKY = "loky"
    OTHER = "other"  # counted, never cleaned


@dataclass(frozen=True, slots=True, kw_only=True)
class Segment:
    """One file. `holders` are processes that have it open or mapped, as of `inspected_at`; empty: there is none at all.

    Where there are any, some may be missing: older processes that have opened it since the last full scan. None:
    unknown. Its holders were not searched since it appeared, changed or lost its known holders, or none was found and a
    process could not be inspected.
    """

    id: SegmentId
    path: str  # below the root of the tmpfs; bytes that are no text are escaped
    kind: SegmentKind
    creator_pid: int | None  # where such names carry it; of whichever PID namespace
    size_bytes: int  # as `ls -l` shows it; may be 20,000 times what is allocated
    allocated_bytes: int
    changed_at: float  # ctime, seconds since the epoch
    uid: int
    holders: frozenset[ProcessId] | None
    inspected_at: float  # seconds on CLOCK_MONOTONIC


@dataclass(frozen=True, slots=True, kw_only=True)
class SharedMemory:
    """The tmpfs (statvfs(3)) and its files. Other tmpfs instances, a container's own say, are no part of it."""

    read_at: float  # begin of the reading, in seconds on CLOCK_MONOTONIC
    size_bytes: int | None  # None where the tmpfs has no bound, and counts nothing
    used_bytes: int | None
    inodes: int | None
    inodes_used: int | None
    segments: tuple[Segment, ...]  # by path
    unlisted: int  # files beyond the bound on their number, and directories that could not be listed
    uninspected: int  # processes whose maps or fds could not be read at the last full scan; 1 or more if any are hidden
