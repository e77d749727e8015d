"""Checks of a unit's limits, against what its engine asks for and its runs ran into. Pure."""

import math
from collections.abc import Iterator

from llmhost.decide.doctor.finding import Case, Finding, Severity
from llmhost.model.engine_arguments import parse_engine_arguments
from llmhost.model.engine_options import given_options
from llmhost.model.wording import GIB, gib

_ENGINES = frozenset({"vllm", "sglang"})
_FEW_FILES = 1024  # both engines raise the soft limit to 65535 where the hard one lets them (set_ulimit)
_ENGINE_FILES = 65535


def memory_limit(case: Case) -> Iterator[Finding]:
    """Find a MemoryMax= below the main memory that the engine's arguments ask for, or under which it was killed."""
    limit, record = case.settings.limits.memory_bytes, case.record
    if limit is None:
        return
    kills = record.failures_total.get("oom-kill", 0) if record is not None else 0
    requested = _offloaded_bytes(case)
    if requested < limit and not kills:
        return
    why = [f"its arguments have it keep {gib(requested)} GiB in main memory"] if requested >= limit else []
    if kills:
        why.append(
            f"{'once a run' if kills == 1 else f'{kills} runs'} ended with the kernel killing for want of memory"
        )
    yield case.finding(
        "memory-limit",
        Severity.ERROR if requested >= limit else Severity.WARNING,
        f"MemoryMax= of {gib(limit)} GiB {'is' if requested >= limit else 'may be'} too little for it",
        "; ".join(why),
        "[Service]",
        "MemoryMax=infinity",
        remedy="or well above what it asks for: page cache, tmpfs and pinned memory count as well",
    )


def file_limit(case: Case) -> Iterator[Finding]:
    """Find a hard LimitNOFILE= that leaves the engine too few descriptors."""
    limit = case.settings.limits.open_files
    engine, _ = case.command
    if engine not in _ENGINES or limit is None or limit > _FEW_FILES:
        return
    yield case.finding(
        "file-limit",
        Severity.WARNING,
        f"LimitNOFILE={limit} is less than its engine asks for",
        f"each connection takes one, and so do channels between its processes; it tries to have {_ENGINE_FILES}",
        "[Service]",
        "LimitNOFILE=524288",
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
    given = given_options(engine, own[1:])
    weights, cache = (_number(given.get(name, "")) for name in ("offloaded_weights", "offloaded_cache"))
    return int((weights * (_workers(case) or 1) + cache) * GIB)


def _number(text: str) -> float:
    try:
        number = float(text)
    except ValueError:
        return 0.0
    return number if math.isfinite(number) and number > 0 else 0.0
