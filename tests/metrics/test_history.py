"""The history of units on the page, where no written host (tests/hosts) shows it; values worked out by hand."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from tests.fakes.pages import exposition, samples
from tests.fakes.values import GIB, MIB, gpu, held, in_service, memory, process, snapshot, unit

from llmhost.metrics.catalog import FAMILIES, Section
from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.gpu import Gpu, Xid
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import InTheWay, Short, Start, Trigger, UnitHistory, Verdict
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.reading import Cause, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit, UnitSettings

VLLM = UnitId("vllm.service")
NOT_EVERY_UNIT = {  # that has been seen just now
    "llmhost_unit_last_start_timestamp_seconds",
    "llmhost_unit_last_resident_start_timestamp_seconds",
    "llmhost_unit_last_start_in_the_way_bytes",
    "llmhost_unit_last_start_short_bytes",
    "llmhost_unit_restarts_short_of_memory",
    "llmhost_unit_last_failure_timestamp_seconds",
    "llmhost_unit_last_release_seconds",
    "llmhost_unit_gives_up",
}
HISTORY = {name for name, family in FAMILIES.items() if family.section is Section.STARTS}

MOST_OF_SHARED_MEMORY = 10 * 4 * 3 + 6  # series: kinds, states, families; and the tmpfs's own


def start(invocation: str, verdict: Verdict | None, *in_the_way: InTheWay, short: tuple[Short, ...] = ()) -> Start:
    return Start(
        invocation_id=invocation,
        trigger=Trigger.AUTO,
        attempt=2,
        at=100.0,
        began_monotonic=10.0,
        verdict=verdict,
        in_the_way=in_the_way,
        short=short,
    )


def found_there(index: int, kind: str, used_bytes: int, gpu_then: str | None = None) -> InTheWay:
    there = str(index) if gpu_then is None else gpu_then
    return InTheWay(uuid=GpuUuid(f"GPU-{index}"), gpu=there, kind=kind, used_bytes=used_bytes)


def lacking(index: int, short_bytes: int, gpu_then: str = "") -> Short:
    return Short(uuid=GpuUuid(f"GPU-{index}"), gpu=gpu_then or str(index), short_bytes=short_bytes)


def history_series(taken: Snapshot, records: Mapping[UnitId, UnitHistory], *labels: str) -> dict[str, dict[Any, float]]:
    """Give the families of history and of XIDs: values by these labels, as a text where it is one."""
    families: dict[str, dict[Any, float]] = {}
    for (name, all_labels), value in samples(exposition(taken, history=History(units=records))).items():
        if name in HISTORY or "_xid_" in name:
            given = dict(all_labels)
            key = tuple(given.get(label, "") for label in labels)
            families.setdefault(name, {})[key[0] if len(key) == 1 else key] = value
    return families


def of(record: UnitHistory, *labels: str, gpus: tuple[Gpu, ...] = ()) -> dict[str, dict[Any, float]]:
    return history_series(snapshot(gpus=gpus, processes=[], units=[unit()]), {VLLM: record}, *labels)


def test_counters_of_a_new_unit_begin_at_zero_and_it_has_no_other_series() -> None:
    for watched in (unit(), unit("vllm.service", "inactive", "dead", load_state="not-found", settings=None)):
        found = history_series(
            snapshot(gpus=[], processes=[], units=[watched]), {}, "trigger", "verdict", "result", "state"
        )
        assert {name: len(series) for name, series in found.items()} == {
            "llmhost_unit_starts_total": 12,
            "llmhost_unit_failures_total": 10,
            "llmhost_unit_unexpected_stops_total": 1,
            "llmhost_unit_state_seconds_total": 10,
            "llmhost_unit_start_limit_hit": 1,
        }
        assert {value for series in found.values() for value in series.values()} == {0.0}
        assert HISTORY - found.keys() == NOT_EVERY_UNIT


def test_a_result_and_a_state_of_a_newer_systemd_have_series_too() -> None:
    record = UnitHistory(last_seen_at=1.0, failures_total={"new-in-299": 1}, state_seconds={"newer": 1.5})
    found = of(record, "result", "state")
    assert found["llmhost_unit_failures_total"]["new-in-299", ""] == 1
    assert found["llmhost_unit_state_seconds_total"]["", "newer"] == 1.5


def in_the_way(*starts: Start, gpus: tuple[Gpu, ...] = ()) -> dict[Any, float]:
    found = of(UnitHistory(last_seen_at=1.0, starts=starts), "gpu", "uuid", "kind", gpus=gpus)
    return found.get("llmhost_unit_last_start_in_the_way_bytes", {})


def test_what_was_in_the_way_is_that_of_the_last_start_of_which_it_is_known() -> None:
    before = start("a", Verdict.RESIDENT, found_there(0, "orphan", 9 * GIB))
    resident = start(
        "b",
        Verdict.RESIDENT,
        found_there(0, "leftover", 70 * GIB),
        found_there(0, "unattributed", 300 * MIB),
        found_there(1, "leftover", 71 * GIB),
    )
    was = {
        ("0", "GPU-0", "leftover"): 75161927680,
        ("0", "GPU-0", "unattributed"): 314572800,
        ("1", "GPU-1", "leftover"): 76235669504,
    }
    assert in_the_way(before, resident) == was
    later = [start("c", Verdict.UNKNOWN), start("d", Verdict.NOT_STARTED), start("e", None)]
    assert in_the_way(before, resident, *later) == was


def test_a_clean_start_shows_what_was_below_the_threshold_or_nothing() -> None:
    resident = start("a", Verdict.RESIDENT, found_there(0, "leftover", 70 * GIB))
    assert in_the_way(resident, start("b", Verdict.CLEAN)) == {}
    little = start("b", Verdict.CLEAN, found_there(0, "session", 200 * MIB))
    assert in_the_way(resident, little) == {("0", "GPU-0", "session"): 209715200}


def test_what_was_in_the_way_bears_the_index_that_the_gpu_has_now_or_else_had() -> None:
    moved = start(
        "a",
        Verdict.RESIDENT,
        found_there(1, "gone", 5 * GIB, gpu_then="3"),
        found_there(2, "gone", 6 * GIB, gpu_then="4"),
    )
    assert in_the_way(moved, gpus=(gpu(0), gpu(1))) == {
        ("1", "GPU-1", "gone"): 5368709120,
        ("4", "GPU-2", "gone"): 6442450944,
    }


def test_how_much_was_short_is_of_the_same_start_as_what_was_in_the_way() -> None:
    judged = start("a", Verdict.CLEAN, short=(lacking(0, 0), lacking(1, 76 * GIB, gpu_then="3")))
    later = start("b", Verdict.UNKNOWN)
    found = of(UnitHistory(last_seen_at=1.0, starts=(judged, later)), "gpu", "uuid", gpus=(gpu(0), gpu(1)))
    assert found["llmhost_unit_last_start_short_bytes"] == {("0", "GPU-0"): 0, ("1", "GPU-1"): 81604378624}
    unknown = start("c", Verdict.RESIDENT, found_there(0, "leftover", GIB))  # of a unit whose need is not known
    assert "llmhost_unit_last_start_short_bytes" not in of(UnitHistory(last_seen_at=1.0, starts=(judged, unknown)))


def test_units_are_distinguished_by_their_managers() -> None:
    user_unit = UnitId("vllm.service", "user@1000")
    records = {VLLM: UnitHistory(last_seen_at=1.0, unexpected_stops_total=1), user_unit: UnitHistory(last_seen_at=1.0)}
    taken = snapshot(gpus=[], processes=[], units=[unit(), replace(unit(), id=user_unit)])
    found = history_series(taken, records, "unit", "manager")["llmhost_unit_unexpected_stops_total"]
    assert found == {("vllm.service", "system"): 1, ("vllm.service", "user@1000"): 0}


def test_a_unit_that_is_not_watched_has_no_history_on_the_page() -> None:
    taken = snapshot(gpus=[], processes=[], units=[unit("other.service")])
    found = history_series(taken, {VLLM: UnitHistory(last_seen_at=1.0, last_start_at=5.0)}, "unit")
    assert {unit for series in found.values() for unit in series} == {"other.service"}


def test_an_xid_error_has_its_time_also_on_a_gpu_that_is_lost() -> None:
    lost = gpu(1, fault=Cause.LOST, xids=(Xid(number=31, count=2, last_at=1767225000.5),))
    found = history_series(snapshot(gpus=[gpu(0), lost], processes=[], units=[]), {}, "gpu", "uuid", "xid")
    assert found["llmhost_gpu_last_xid_timestamp_seconds"] == {("1", "GPU-1", "31"): 1767225000.5}


SETTINGS = UnitSettings(
    service_type="exec",
    restart="always",
    restart_delay_seconds=10.0,
    start_timeout_seconds=90.0,
    stop_timeout_seconds=90.0,
    start_limit_burst=5,
    start_limit_interval_seconds=10.0,
    exec_start=(("/v/bin/vllm", "serve", "m", "--tensor-parallel-size", "8"),),
)
SAMPLE = EngineSample(
    model="m",
    engine_index="0",
    generation_tokens=1.0,
    prompt_tokens=1.0,
    requests_running=1.0,
    requests_waiting=1.0,
    kv_cache_usage_ratio=0.5,
    preemptions=1.0,
    steps=1.0,
    sleeping=False,
    finished={"stop": 1.0, "length": 1.0, "abort": 1.0, "error": 0.0},
)


def _watched(number: int) -> tuple[Unit, UnitHistory]:
    """Give a unit on all GPUs of which there is everything to tell."""
    watched = unit(f"vllm-{number}.service", settings=SETTINGS, state_change_at=1.0, exec_main_status=0)
    return watched, UnitHistory(
        last_seen_at=1.0,
        last_start_at=1.0,
        last_resident_start_at=1.0,
        last_failure_at=1.0,
        last_release_seconds=1.0,
        starts=(
            start(
                "a",
                Verdict.RESIDENT,
                *(found_there(index, "leftover", 70 * GIB) for index in range(8)),
                *(found_there(index, "unattributed", 1 * GIB) for index in range(8)),
                short=tuple(lacking(index, GIB) for index in range(8)),
            ),
        ),
    )


def test_a_host_of_eight_gpus_and_four_units_stays_below_eight_hundred_series() -> None:
    units = [_watched(number) for number in range(4)]
    gpus = [
        gpu(
            index,
            memory=memory(used=75 * GIB),
            holders=Ok(tuple(held(100 * number + index + 10, 18 * GIB) for number in range(4))),
            fabric_ready=True,
            xids=(Xid(number=31, count=2, last_at=1.0), Xid(number=79, count=1, last_at=1.0)),
        )
        for index in range(8)
    ]
    processes = [
        process(100 * number + index + 10, in_service(f"vllm-{number}.service"))
        for number in range(4)
        for index in range(8)
    ]
    answers = tuple(
        EngineAnswer(unit=watched.id, engine="vllm", endpoint=f"http://127.0.0.1:800{number}", samples=Ok((SAMPLE,)))
        for number, (watched, _) in enumerate(units)
    )
    taken = replace(
        snapshot(gpus=gpus, processes=processes, units=[watched for watched, _ in units]),
        engines=Ok(EnginesReport(answers=answers)),
    )
    page = samples(exposition(taken, history=History(units={watched.id: record for watched, record in units})))
    count = Counter(name for name, _ in page)
    assert count["llmhost_gpu_holder_processes"] == 32
    assert count["llmhost_unit_gpu_memory_needed_bytes"] == 32
    assert count["llmhost_unit_last_start_in_the_way_bytes"] == 64
    assert count["llmhost_engine_requests_finished_total"] == 16
    assert len(page) + MOST_OF_SHARED_MEMORY < 800
