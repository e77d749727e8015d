"""Of limits and users: each finding on values that have it, and on values that just have not."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.diagnosed import RECORD, SERVE, of, settings
from tests.fakes.values import GIB

from llmhost.decide.doctor.finding import Finding, Severity
from llmhost.model.sandbox import Limits, Sandbox
from llmhost.model.unit import UnitSettings


def limited(command: str = SERVE, **limits: int) -> UnitSettings:
    return settings(command, limits=Limits(**limits))


def test_memory_that_is_asked_for_above_the_limit_is_found() -> None:
    offloading = f"{SERVE} -tp 4 --cpu-offload-gb 10 --kv-offloading-size=20"
    (finding,) = of("memory-limit", limited(offloading, memory_bytes=60 * GIB))  # 4 × 10 + 20
    assert finding.severity is Severity.ERROR
    assert "60.0 GiB" in finding.why
    assert finding.drop_in == ("[Service]", "MemoryMax=infinity")
    assert of("memory-limit", limited(offloading, memory_bytes=60 * GIB + 1)) == ()
    assert of("memory-limit", limited(offloading)) == ()
    assert of("memory-limit", limited(f"{SERVE} --cpu-offload-gb $G", memory_bytes=1)) == ()
    assert of("memory-limit", limited(f"{SERVE} --cpu-offload-gb nan", memory_bytes=1)) == ()


def test_a_memory_limit_under_which_runs_were_killed_is_found() -> None:
    killed = replace(RECORD, failures_total={"oom-kill": 3})
    (finding,) = of("memory-limit", limited(memory_bytes=64 * GIB), record=killed)
    assert finding.severity is Severity.WARNING, "the host may have been short of memory as well"
    assert "3 runs ended" in finding.why
    assert of("memory-limit", limited(), record=killed) == ()


def test_a_task_limit_below_what_workers_take_is_found() -> None:
    (finding,) = of("task-limit", limited(f"{SERVE} -tp 8", tasks=359))
    assert finding.severity is Severity.WARNING
    assert "each of its 8 workers takes 45 at least" in finding.why
    assert finding.drop_in == ("[Service]", "TasksMax=infinity")
    assert of("task-limit", limited(f"{SERVE} -tp 8", tasks=360)) == ()
    assert of("task-limit", limited(f"{SERVE} -tp 8")) == ()
    assert of("task-limit", limited(f"{SERVE} -tp $TP", tasks=1)) == ()
    assert of("task-limit", limited("/usr/bin/other", tasks=1)) == ()


@pytest.mark.parametrize(("limit", "severity"), [(1024, Severity.WARNING), (65534, Severity.NOTE)])
def test_a_file_limit_that_the_engine_cannot_raise_is_found(limit: int, severity: Severity) -> None:
    (finding,) = of("file-limit", limited(open_files=limit))
    assert finding.severity is severity
    assert f"LimitNOFILE={limit}" in finding.what
    assert finding.drop_in == ("[Service]", "LimitNOFILE=524288")


def test_a_file_limit_that_is_high_enough_or_not_an_engines_is_none() -> None:
    assert of("file-limit", limited(open_files=65535)) == ()
    assert of("file-limit", limited()) == ()
    assert of("file-limit", limited("/usr/bin/other", open_files=1024)) == ()


def test_locked_memory_matters_where_there_is_a_sign_of_rdma_and_no_capability() -> None:
    user = Sandbox(user="llm", capabilities=2**64 - 1)
    small = Limits(locked_memory_bytes=8 << 20)

    def told(command: str = SERVE, **given: Any) -> tuple[Finding, ...]:  # noqa: ANN401
        return of("locked-memory", settings(command, **({"limits": small, "sandbox": user} | given)))

    (finding,) = told(f"{SERVE} --nnodes 2")
    assert (finding.severity, finding.what) == (Severity.NOTE, "LimitMEMLOCK=8192K may be too little for it")
    assert "it spans 2 hosts" in finding.why
    assert len(told(f"{SERVE} --kv-transfer-config {{}}")) == 1
    assert len(told(environment=(("NCCL_IB_HCA", "mlx5"),))) == 1
    assert told() == ()
    assert told(f"{SERVE} --nnodes 1") == ()
    assert told(f"{SERVE} --nnodes 2", limits=Limits()) == ()
    assert told(f"{SERVE} --nnodes 2", sandbox=replace(user, user="")) == (), "root may lock"
    assert told(f"{SERVE} --nnodes 2", sandbox=replace(user, ambient_capabilities=1 << 14)) == ()


def test_core_dumps_that_were_written_are_noted() -> None:
    dumped = replace(RECORD, failures_total={"core-dump": 1})
    (finding,) = of("core-dumps", limited(), record=dumped)
    assert (finding.severity, finding.drop_in) == (Severity.NOTE, ("[Service]", "LimitCORE=0"))
    assert "it did so once" in finding.why
    assert of("core-dumps", limited(core_bytes=0), record=dumped) == ()
    assert of("core-dumps", limited(), record=replace(RECORD, failures_total={"signal": 1})) == ()
