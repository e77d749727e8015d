"""The lines that the journal gets, word for word."""

from dataclasses import replace

from tests.fakes.values import GIB, MIB, unit

from llmhost.derive.attribution import Holder, HolderKind
from llmhost.derive.history.events import Ended
from llmhost.derive.in_the_way import Obstacle
from llmhost.model.history.unit_history import End, Start, Trigger, Verdict
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.starts.start_log import end_line, start_line

START = Start(
    invocation_id="0123abcd",
    trigger=Trigger.AUTO,
    attempt=3,
    at=1000.0,
    began_monotonic=10.0,
    main_monotonic=10.1,
    verdict=Verdict.RESIDENT,
)
VLLM = UnitId("vllm.service")


WORKER = Holder(
    pid=4711,
    process=None,
    command="VLLM::Worker_TP0",
    unit=VLLM,
    kind=HolderKind.LEFTOVER,
    used_bytes=80 * GIB + GIB // 10,
)


def held(used_bytes: int = 80 * GIB + GIB // 10, **given: object) -> Obstacle:
    """Memory that a leftover holds on GPU 0."""
    holder = replace(WORKER, used_bytes=used_bytes, **given)  # type: ignore[arg-type]
    return Obstacle(uuid=GpuUuid("GPU-0"), gpu="0", used_bytes=used_bytes, holder=holder)


def unattributed(gpu: str, used_bytes: int) -> Obstacle:
    return Obstacle(uuid=GpuUuid(f"GPU-{gpu}"), gpu=gpu, used_bytes=used_bytes)


def test_a_start_names_the_holders_in_its_way() -> None:
    assert start_line(VLLM, START, (held(), unattributed("6", 2 * GIB))) == (
        "start unit=vllm.service attempt=3 trigger=auto verdict=resident in_the_way="
        '"GPU 0: 80.1 GiB leftover pid 4711 (VLLM::Worker_TP0) of vllm.service; GPU 6: 2.0 GiB unattributed" '
        "invocation_id=0123abcd"
    )


def test_many_in_the_way_are_cut_short() -> None:
    line = start_line(VLLM, START, tuple(held(pid=pid) for pid in range(1, 12)))
    assert line.count("pid ") == 8
    assert '; and 3 more"' in line


def test_a_clean_start_is_short() -> None:
    clean = replace(START, verdict=Verdict.CLEAN, trigger=Trigger.MANUAL, attempt=1)
    line = "start unit=vllm.service attempt=1 trigger=manual verdict=clean invocation_id=0123abcd"
    assert start_line(VLLM, clean, ()) == line
    # also on GPUs that nobody uses, each of which has a few MiB in use; 0.05 GiB is the least that shows
    few = [unattributed(str(index), 4 * MIB) for index in range(8)]
    assert start_line(VLLM, clean, tuple(few)) == line
    some = (unattributed("0", 100 * MIB), *few)
    assert 'in_the_way="GPU 0: 0.1 GiB unattributed" invocation_id' in start_line(VLLM, clean, some)


def test_an_unknown_verdict_says_why() -> None:
    unknown = replace(START, verdict=Verdict.UNKNOWN, unknown_because="timeout: nvmlInit for 2.0 s")
    assert start_line(VLLM, unknown, ()).endswith(
        ' verdict=unknown because="timeout: nvmlInit for 2.0 s" invocation_id=0123abcd'
    )


def test_the_end_of_a_run_gives_its_result_and_duration() -> None:
    ended = replace(START, end=End(at=1010.0, result="exit-code", exec_main_status=1, asked=False, seconds=12.34))
    assert end_line(Ended(unit=unit(), start=ended)) == (
        "end unit=vllm.service attempt=3 trigger=auto result=exit-code exec_main_status=1 asked=no after=12.3s "
        "invocation_id=0123abcd"
    )


def test_an_attempt_that_never_started_says_so() -> None:
    never = replace(
        START,
        main_monotonic=None,
        verdict=Verdict.NOT_STARTED,
        end=End(at=1034.0, result="timeout", exec_main_status=None, asked=False, seconds=34.0),
    )
    assert "verdict=not_started result=timeout asked=no after=34.0s" in end_line(Ended(unit=unit(), start=never))


def test_what_is_in_a_name_cannot_forge_a_field() -> None:
    line = start_line(VLLM, START, (held(command='x" verdict=clean\nstart unit=other'),))
    assert "\n" not in line
    assert r"x\" verdict=clean\nstart" in line


def test_what_is_in_a_name_cannot_forge_another_in_the_way() -> None:
    short = "x) of y.service"  # what fits into comm
    assert "leftover pid 4711 (x] of y.service) of vllm.service" in start_line(VLLM, START, (held(command=short),))
    forged = "VLLM::Worker_TP0) of a.service; GPU 1: 80.0 GiB leftover pid 1 (nginx) of nginx.service"
    line = start_line(VLLM, START, (held(command=forged + "A" * 100_000),))
    assert "pid 4711 (VLLM::Worker_TP0] of a.service, GPU 1: 8...) of vllm.service" in line
    assert len(line) < 250
