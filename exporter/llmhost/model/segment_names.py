"""Kinds of shared-memory segments by name: one table, after the rows of the config.

Rows are as narrow as the names that their makers give: what is not listed is `other`, which is counted and never
cleaned (PostgreSQL.*, pulse-shm-*, mono.*, triton_python_backend_shm_region_*, people's own files). A name proves
nothing about the users of the file, and a pid in it may be of another PID namespace.
"""

import re
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Final, Protocol

from llmhost.model.segment import SegmentKind


class NameRow(Protocol):
    """A row of the config: a glob over the path below the root of the tmpfs, and the kind that it means."""

    @property
    def pattern(self) -> str: ...

    @property
    def kind(self) -> SegmentKind: ...


_PID: Final = "(?P<pid>[1-9][0-9]{0,9})"
_RANDOM: Final = "[a-z0-9_]{8}"  # tempfile._RandomNameSequence
_HEX32: Final = "[0-9a-f]{32}"  # uuid4().hex

# Expressions that match a whole path below the root. `pid` stands where the maker puts its own.
_ROWS: Final = (
    # CPython multiprocessing/shared_memory.py: "/psm_" + secrets.token_hex(4)
    (SegmentKind.PYTHON_SHM, "psm_[0-9a-f]{8}"),
    # CPython multiprocessing/heap.py; unlinked at once, so a file means that its maker was killed right then
    (SegmentKind.PYTHON_SHM, f"pym-{_PID}-{_RANDOM}"),
    # CPython multiprocessing/synchronize.py: "/mp-" + random, which sem_open(3) makes sem.mp-…
    (SegmentKind.SEMAPHORE, f"sem[.]mp-{_RANDOM}"),
    # joblib: loky/backend/synchronize.py, and the folder of _memmapping_reducer.py
    (SegmentKind.LOKY, f"sem[.]loky-{_PID}-{_RANDOM}"),
    (SegmentKind.LOKY, f"joblib_memmapping_folder_{_PID}_[0-9a-f]+_[0-9a-f]+/.+"),
    # NCCL src/misc/shmutils.cc: mkstemp("/dev/shm/nccl-XXXXXX"); before 2.7 nccl-shm-send-…
    (SegmentKind.NCCL, "nccl-([A-Za-z0-9]{6}|shm-.+)"),
    # PyTorch, torch.multiprocessing with sharing strategy file_system, and for a moment with file_descriptor
    (SegmentKind.TORCH, f"torch_{_PID}_[0-9]+_[0-9]+"),
    # vLLM: CPU workers ("vllm_dist_<hex>-tp:0-[0-1]-cpushm_0"), KV offload, multimodal object store
    (SegmentKind.VLLM, f"vllm_dist_{_HEX32}.*"),
    (SegmentKind.VLLM, "vllm_offload_.+[.]mmap"),
    (SegmentKind.VLLM, f"VLLM_OBJECT_STORAGE_SHM_BUFFER(_{_HEX32})?"),
    # SGLang: utils/stale_shm_cleanup.py, multi_tokenizer_mixin.py, load_snapshot.py
    (SegmentKind.SGLANG, f"sgl_shm_.+_{_PID}_[0-9a-f]+"),
    (SegmentKind.SGLANG, f"multi_tokenizer_args_{_PID}"),
    (SegmentKind.SGLANG, "sglang_loads_.+"),
    # CUDA driver, MPS server (mps.shm.<uid>.<pid>), NVSHMEM
    (SegmentKind.CUDA, f"mps[.]shm[.][0-9]+[.]{_PID}"),
    (SegmentKind.CUDA, "(cuda|mps)[.]shm[.].+"),
    (SegmentKind.CUDA, "nvshmem.*"),
    # LLVM's OpenMP runtime: pid, since LLVM 15 and uid
    (SegmentKind.OPENMP, f"__KMP_REGISTERED_LIB_{_PID}(_[0-9]+)?"),
)
# The name that act/removing gives a file for the moment before it unlinks it; it stays if that is interrupted.
_HIDDEN: Final = re.compile(r"((?:.*/)?)[.]llmhost-removing[.][0-9a-f]{8}[.]([^/]+)", re.DOTALL)
_TABLE: Final = tuple((kind, re.compile(expression, re.DOTALL)) for kind, expression in _ROWS)


def kind_of(path: str, extra: Iterable[NameRow] = ()) -> tuple[SegmentKind, int | None]:
    """Give the kind of a file by its path below the root, and its maker's pid where such names have it.

    The first of `extra` that matches decides; no pid is known of those. A hidden file is of the kind that it was.
    """
    path = as_made(path)
    for row in extra:
        if fnmatchcase(path, row.pattern):
            return row.kind, None
    for kind, expression in _TABLE:
        if found := expression.fullmatch(path):
            pid = found.groupdict().get("pid")
            return kind, int(pid) if pid is not None else None
    return SegmentKind.OTHER, None


def hidden_name(name: str, token: str) -> str:
    """Name a file so that no other program finds it: `name` is the last part of its path, `token` 8 hex digits."""
    return f".llmhost-removing.{token}.{name}"


def as_made(path: str) -> str:
    """Give the path that a file's maker gave it, where it is hidden."""
    found = _HIDDEN.fullmatch(path)
    return path if found is None else found[1] + found[2]
