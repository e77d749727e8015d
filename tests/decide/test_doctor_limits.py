"""Of limits and users: each finding on values that have it, and on values that just have not."""

from dataclasses import replace

from tests.fakes.doctor_cases import RECORD, SERVE, of, settings
from tests.fakes.values import GIB

from llmhost.decide.doctor.finding import Severity
from llmhost.model.sandbox import Limits
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


def test_a_file_limit_that_leaves_the_engine_too_few_descriptors_is_found() -> None:
    (finding,) = of("file-limit", limited(open_files=1024))
    assert finding.severity is Severity.WARNING
    assert "LimitNOFILE=1024" in finding.what
    assert finding.drop_in == ("[Service]", "LimitNOFILE=524288")


def test_a_file_limit_that_is_high_enough_or_not_an_engines_is_none() -> None:
    assert of("file-limit", limited(open_files=1025)) == ()
    assert of("file-limit", limited()) == ()
    assert of("file-limit", limited("/usr/bin/other", open_files=1024)) == ()
