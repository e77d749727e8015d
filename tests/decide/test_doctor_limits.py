"""Of limits and users: each finding on values that have it, and on values that just have not."""

from dataclasses import replace

from tests.fakes.doctor_cases import RECORD, SERVE, found, of, settings, view
from tests.fakes.values import GIB, in_service, process, unit

from llmhost.decide.doctor.diagnose import diagnose
from llmhost.decide.doctor.finding import Finding, Severity
from llmhost.derive.host_view import HostView
from llmhost.model.process import Process, Role
from llmhost.model.reading import Ok
from llmhost.model.sandbox import Limits, Sandbox
from llmhost.model.unit import Logind, UnitSettings, UnitsReport


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


def main_of(uid: int) -> Process:
    return process(10, in_service("vllm.service"), role=Role.API_SERVER, engine="vllm", uid=uid)


def test_a_person_as_user_is_noted() -> None:
    def run_by(uid: int) -> tuple[Finding, ...]:
        return found("remove-ipc", unit(main_pid=10, settings=settings()), processes=[main_of(uid)])

    (finding,) = run_by(1000)
    assert finding.severity is Severity.NOTE
    for uid in (0, 999, 65534, 61184):
        assert run_by(uid) == ()
    assert found("remove-ipc", unit(main_pid=11, settings=settings()), processes=[main_of(1000)]) == ()


def of_logind(logind: Logind, user: str, uid: int | None) -> tuple[Finding, ...]:
    """Give the findings for a unit that runs as this uid; None: that does not run."""
    given = unit(main_pid=10 if uid is not None else 0, settings=settings(sandbox=Sandbox(user=user)))
    at: HostView = view(given, processes=[main_of(uid)] if uid is not None else [])
    units = Ok(UnitsReport(systemd_version="252", units=(given,), logind=logind))
    return tuple(
        finding
        for finding in diagnose(replace(at, snapshot=replace(at.snapshot, units=units)))
        if finding.check == "remove-ipc"
    )


REMOVES = Logind(removes_ipc=True, first_person_uid=500, lingering=frozenset({"lingerer"}))


def test_what_logind_says_makes_it_certain_or_nothing() -> None:
    (finding,) = of_logind(REMOVES, "llm", 500)
    assert finding.severity is Severity.WARNING
    assert "RemoveIPC=yes is in force" in finding.why
    assert "loginctl enable-linger llm" in finding.remedy
    assert of_logind(REMOVES, "llm", 499) == ()
    assert of_logind(REMOVES, "lingerer", 500) == ()
    assert of_logind(replace(REMOVES, removes_ipc=False), "llm", 500) == ()


def test_a_user_by_number_is_known_before_anything_runs_and_one_by_name_is_not() -> None:
    (finding,) = of_logind(REMOVES, "1000", None)
    assert "user 1000" in finding.what
    assert of_logind(REMOVES, "499", None) == ()
    assert of_logind(REMOVES, "llm", None) == ()
