"""A history in which every field says something, and the file that says the same, written by hand."""

from pathlib import Path

from llmhost.model.history.history import History, LearntGpus, Readiness
from llmhost.model.history.unit_history import End, InTheWay, Start, Trigger, UnitHistory, Verdict
from llmhost.model.ids import GpuUuid, ProcessId, RunId, UnitId
from llmhost.model.segment import SegmentId

FILE_1 = Path(__file__).parents[1] / "fixtures" / "history-1.json"  # of version 1; never to be changed

BOOT = "5d7c0a3e-8e1b-4a39-9a53-2f6f0c1f7a11"
BIG = UnitId("vllm-744b.service")
OLLAMA = UnitId("ollama.service", "user@1000")
FIRST_RUN = "11111111111141118111111111111111"
SECOND_RUN = "9f2c4e6a8b0d4f61a3c5e7092b4d6f80"
_SEGMENT = SegmentId(25, 18446744073709551615)

WRITTEN_DOWN = History(
    boot_id=BOOT,
    units={
        BIG: UnitHistory(
            last_seen_at=1764467990.25,
            invocation_id=SECOND_RUN,
            nrestarts=6,
            loaded=True,
            stopped=False,
            state="active",
            state_since_monotonic=7300.5,
            starts=(
                Start(
                    invocation_id=FIRST_RUN,
                    trigger=Trigger.MANUAL,
                    attempt=1,
                    at=1764460000.0,
                    began_monotonic=100.5,
                    main_monotonic=134.75,
                    verdict=Verdict.CLEAN,
                    ready_seconds=412.25,
                    end=End(at=1764467000.0, result="signal", exec_main_status=9, asked=False, seconds=7000.0),
                    seen_in_state_before=True,
                    state_before_monotonic=100.25,
                    start_job=231,
                ),
                Start(
                    invocation_id=SECOND_RUN,
                    trigger=Trigger.AUTO,
                    attempt=2,
                    at=1764467200.0,
                    began_monotonic=7300.5,
                    main_monotonic=7301.0,
                    verdict=Verdict.RESIDENT,
                    in_the_way=(
                        InTheWay(
                            uuid=GpuUuid("GPU-7d1f2c3a-0b64-4f3e-9b0e-5a2f6c1d8e90"),
                            gpu="6",
                            kind="leftover",
                            used_bytes=97710505984,
                        ),
                    ),
                ),
            ),
            starts_total={
                (Trigger.MANUAL, Verdict.CLEAN): 1,
                (Trigger.AUTO, Verdict.RESIDENT): 6,
                (Trigger.AUTO, Verdict.NOT_STARTED): 2,
            },
            failures_total={"signal": 1, "exit-code": 5},
            unexpected_stops_total=3,
            state_seconds={"active": 7000.125, "auto_restart": 10.0},
            last_start_at=1764467200.0,
            last_resident_start_at=1764467200.0,
            last_failure_at=1764467000.0,
            last_release_seconds=41.5,
        ),
        OLLAMA: UnitHistory(last_seen_at=1764460000.0),
    },
    gpu_sets={BIG: LearntGpus(invocation_id=FIRST_RUN, uuids=(GpuUuid("GPU-a"), GpuUuid("GPU-b")))},
    readiness={
        BIG: Readiness(
            invocation_id=FIRST_RUN,
            start_seen=True,
            seconds={"127.0.0.1:8000": 412.25, "127.0.0.1:8001": None},
            past_seconds=(398.0, 412.25),
        )
    },
    process_runs={ProcessId(4711, 123456): RunId(unit=BIG, invocation_id=FIRST_RUN)},
    segment_units={SegmentId(25, 1234): BIG},
    shm_at=7290.5,
    unheld_since={_SEGMENT: 7200.0},
    unheld_changed_at={_SEGMENT: 1764460000.125},
    processes_since=90.0,
    processes_at=None,
    orphan_since={ProcessId(4712, 123457): 7210.0},
)


def with_starts(units: int, starts: int, *, at: float = 1_000_000.0) -> History:
    """Make a history of so many units; unit N was seen last at `at` + N, its starts were 1 s apart up to then."""
    return History(
        boot_id=BOOT,
        units={
            UnitId(f"vllm@{unit}.service"): UnitHistory(
                last_seen_at=at + unit,
                starts=tuple(
                    Start(
                        invocation_id=f"{unit:016x}{number:016x}",
                        trigger=Trigger.AUTO,
                        attempt=number + 1,
                        at=at + unit - starts + number,
                        began_monotonic=float(number),
                        main_monotonic=float(number),
                        verdict=Verdict.CLEAN,
                        end=End(at=at + unit, result="exit-code", exec_main_status=1, asked=False, seconds=0.5),
                    )
                    for number in range(starts)
                ),
                starts_total={(Trigger.AUTO, Verdict.CLEAN): starts},
            )
            for unit in range(units)
        },
    )
