"""Checks of a unit's limits, against what its engine asks for, takes by itself, and was seen to run into. Pure."""

import math
from collections.abc import Iterator

from llmhost.decide.doctor.finding import Case, Finding, Severity
from llmhost.model.engine_arguments import given_options, parse_engine_arguments
from llmhost.model.wording import GIB, gib

_ENGINES = frozenset({"vllm", "sglang"})
_WANTED_FILES = 65535  # both raise the soft limit to this where the hard one lets them (set_ulimit)
_FEW_FILES = 1024
_THREADS_OF_A_WORKER = 45  # measured, vLLM 0.32 on two cores; more cores and a GPU make it more
_SYS_IPC_LOCK = 1 << 14  # linux/capability.h: with it LimitMEMLOCK= does not count
_FABRIC_VARIABLES = ("NCCL_IB_HCA", "UCX_NET_DEVICES", "NVSHMEM_HCA_LIST")


def memory_limit(case: Case) -> Iterator[Finding]:
    """Find a MemoryMax= below what the engine is told to keep in main memory, or that it was killed under."""
    limit, record = case.settings.limits.memory_bytes, case.record
    if limit is None:
        return
    kills = record.failures_total.get("oom-kill", 0) if record is not None else 0
    asked = _offloaded_bytes(case)
    if asked < limit and not kills:
        return
    why = [f"its arguments have it keep {gib(asked)} GiB in main memory"] if asked >= limit else []
    if kills:
        why.append(
            f"{'once a run' if kills == 1 else f'{kills} runs'} ended with the kernel killing for want of memory"
        )
    yield case.finding(
        "memory-limit",
        Severity.ERROR if asked >= limit else Severity.WARNING,
        f"MemoryMax= of {gib(limit)} GiB {'is' if asked >= limit else 'may be'} too little for it",
        "; ".join(why),
        "[Service]",
        "MemoryMax=infinity",
        remedy="or well above what it asks for: page cache, tmpfs and pinned memory count as well",
    )


def task_limit(case: Case) -> Iterator[Finding]:
    """Find a TasksMax= that the workers' threads alone exceed."""
    limit, workers = case.settings.limits.tasks, _workers(case)
    if limit is None or workers is None or limit >= workers * _THREADS_OF_A_WORKER:
        return
    who = "its worker takes" if workers == 1 else f"each of its {workers} workers takes"
    yield case.finding(
        "task-limit",
        Severity.WARNING,
        f"TasksMax={limit} is too few for it",
        f"threads count, and {who} {_THREADS_OF_A_WORKER} at least",
        "[Service]",
        "TasksMax=infinity",
    )


def file_limit(case: Case) -> Iterator[Finding]:
    """Find a hard LimitNOFILE= that keeps the engine from raising its soft one."""
    limit = case.settings.limits.open_files
    engine, _ = case.command
    if engine not in _ENGINES or limit is None or limit >= _WANTED_FILES:
        return
    yield case.finding(
        "file-limit",
        Severity.WARNING if limit <= _FEW_FILES else Severity.NOTE,
        f"LimitNOFILE={limit} is less than its engine asks for",
        f"each connection takes one, and so do channels between its processes; it tries to have {_WANTED_FILES}",
        "[Service]",
        "LimitNOFILE=524288",
    )


def locked_memory(case: Case) -> Iterator[Finding]:
    """Find a LimitMEMLOCK= in the way of RDMA, which locks what it sends from. CUDA's pinned memory does not count."""
    limit, sandbox = case.settings.limits.locked_memory_bytes, case.settings.sandbox
    by_root = sandbox.user in {"", "root", "0"} and not sandbox.dynamic_user
    powers = sandbox.capabilities if by_root else sandbox.ambient_capabilities
    if limit is None or powers is None or powers & _SYS_IPC_LOCK:
        return
    sign = _sign_of_rdma(case)
    if not sign:
        return
    yield case.finding(
        "locked-memory",
        Severity.NOTE,
        f"LimitMEMLOCK={limit >> 10}K may be too little for it",
        f"{sign}; if that goes over InfiniBand or RoCE, all buffers are locked memory",
        "[Service]",
        "LimitMEMLOCK=infinity",
    )


def core_dumps(case: Case) -> Iterator[Finding]:
    """Find runs that ended in dumping core: until it is written, the process keeps its memory on the GPUs."""
    record = case.record
    dumps = record.failures_total.get("core-dump", 0) if record is not None else 0
    if not dumps or case.settings.limits.core_bytes == 0:
        return
    yield case.finding(
        "core-dumps",
        Severity.NOTE,
        "dumps core when it crashes, which takes as long as its main memory is large",
        f"it did so {'once' if dumps == 1 else f'{dumps} times'}; until the dump is written it keeps its GPU memory",
        "[Service]",
        "LimitCORE=0",
    )


def _workers(case: Case) -> int | None:
    engine, own = case.command
    if engine != "vllm":
        return None
    given = parse_engine_arguments(engine, own)
    if given.tensor_parallel is None or given.pipeline_parallel is None or given.data_parallel is None:
        return None
    return given.tensor_parallel * given.pipeline_parallel * given.data_parallel


def _offloaded_bytes(case: Case) -> int:
    """Weights are offloaded per GPU, the KV cache in all (vLLM, config/offload.py and config/cache.py)."""
    engine, own = case.command
    if engine != "vllm":
        return 0
    options = {"weights": ("--cpu-offload-gb",), "cache": ("--kv-offloading-size",)}
    given = given_options(options, own[1:], underscores=True)
    weights, cache = (_number(given.get(name, "")) for name in options)
    return int((weights * (_workers(case) or 1) + cache) * GIB)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0


def _sign_of_rdma(case: Case) -> str:
    variable = next((name for name, _ in case.settings.environment if name in _FABRIC_VARIABLES), "")
    if variable:
        return f"{variable} is set"
    engine, own = case.command
    if engine not in _ENGINES:
        return ""
    options = {"nodes": ("--nnodes",), "transfer": ("--kv-transfer-config",)}
    given = given_options(options, own[1:], underscores=True)
    if _number(given.get("nodes", "")) > 1:
        return f"it spans {given['nodes']} hosts"
    return "it hands its KV cache to others" if given.get("transfer") else ""
