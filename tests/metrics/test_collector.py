"""From an observation to text: isolation of sections, bounds, formats."""

import math
from dataclasses import replace

import pytest
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_text
from tests.fakes.pages import exposition, samples
from tests.fakes.values import GIB, gpu, held, in_service, memory, process, settings, snapshot, unit

from llmhost.config.schema import Config, GpusConfig, SeriesConfig, UnitsConfig
from llmhost.metrics.exposition import encode
from llmhost.metrics.page import Page
from llmhost.metrics.sections import SECTIONS
from llmhost.metrics.view import PageView
from llmhost.model.engine import EngineAnswer, EngineSample, EnginesReport
from llmhost.model.history.history import History, Readiness
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process, Role
from llmhost.model.reading import Cause, Failed, Ok, StuckCall
from llmhost.model.segment import Segment, SegmentId, SegmentKind, SharedMemory
from llmhost.model.unit import UnitsReport

UNLISTED, HIDDEN = "llmhost_shm_unlisted_files", "llmhost_shm_hidden_bytes"
SHM = {"llmhost_shm_segments", "llmhost_shm_size_bytes", UNLISTED, HIDDEN}
TRACKERS = {"llmhost_resource_trackers"}
HOST = snapshot(
    gpus=[gpu(0, memory=memory(used=70 * GIB), holders=Ok((held(5, 70 * GIB),)))],
    processes=[process(5, in_service("vllm.service"))],
    units=[unit()],
)


def test_health_is_reported_apart_from_data() -> None:
    found = samples(exposition(HOST))
    assert found["llmhost_collector_success", (("collector", "nvml"),)] == 1
    assert found["llmhost_collector_success", (("collector", "systemd"),)] == 0
    assert found["llmhost_collector_fault", (("cause", "no_bus"), ("collector", "systemd"))] == 1
    assert found["llmhost_collector_failures_total", (("cause", "timeout"), ("collector", "nvml"))] == 2
    assert ("llmhost_collector_last_success_timestamp_seconds", (("collector", "systemd"),)) not in found


def test_a_bug_in_a_section_costs_that_section_and_shows(caplog: pytest.LogCaptureFixture) -> None:
    def broken(_view: PageView, _page: Page) -> None:
        raise KeyError("a bug")

    found = samples(exposition(HOST, sections=(("nvml", broken), *SECTIONS[1:])))
    names = {name for name, _ in found}
    assert "llmhost_gpu_up" not in names
    assert "llmhost_gpu_holder_memory_bytes" in names
    assert "llmhost_unit_active_state" in names
    assert found["llmhost_collector_success", (("collector", "nvml"),)] == 0
    assert found["llmhost_collector_fault", (("cause", "unknown"), ("collector", "nvml"))] == 1
    assert "a bug in section broken of the page" in caplog.text


def test_a_bug_in_what_is_derived_leaves_what_needs_none(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def broken(*_given: object) -> object:
        raise OverflowError("a bug")

    monkeypatch.setattr("llmhost.derive.host_view.derive", broken)
    found = samples(exposition(HOST))
    names = {name for name, _ in found}
    assert {"llmhost_gpu_memory_used_bytes", "llmhost_policy_resident_bytes", "llmhost_build_info"} <= names
    assert not any(name.startswith("llmhost_unit_") for name in names)
    assert found["llmhost_collector_fault", (("cause", "unknown"), ("collector", "nvml"))] == 1
    assert "a bug in what is derived" in caplog.text


def test_series_over_the_bound_are_counted_and_the_count_never_goes_back() -> None:
    many = snapshot(gpus=[gpu(index) for index in range(12)], processes=[], units=[])
    made = exposition(many, Config(series=SeriesConfig(max_per_family=10)))
    dropped = ("llmhost_dropped_series_total", (("family", "llmhost_gpu_up"),))
    first = samples(made)
    assert sum(name == "llmhost_gpu_up" for name, _ in first) == 10
    assert first[dropped] == 2
    assert samples(made)[dropped] == 4


def test_units_that_last_keep_their_series_beside_any_number_of_ended_transient_ones() -> None:
    """1000 series a family are 83 units at 12 series of the largest; six are here to stay, or run."""
    ended = [
        unit(f"run-r{n:03}.service", "inactive", "dead", load_state="not-found", unit_file_state="") for n in range(140)
    ]
    failed = [unit(f"a-r{n:03}.service", "failed", "failed", unit_file_state="transient") for n in range(60)]
    lasting = [
        unit("run-up.service", unit_file_state="transient"),
        unit("run-waits.service", "activating", "auto-restart", unit_file_state="transient"),
        unit("gone.service", "inactive", "dead", load_state="not-found", unit_file_state=""),  # in the config
        unit("vllm.service"),
        unit("vllm-linked.service", unit_file_state="generated"),
        unit("vllm-off.service", "inactive", "dead", load_state="stub", unit_file_state="disabled", settings=None),
    ]
    last_starts = {each.id: float(n) for n, each in enumerate([*failed, *ended])}
    history = History(
        units={unit: UnitHistory(last_seen_at=0.0, last_start_at=started) for unit, started in last_starts.items()}
    )
    many = replace(HOST, units=Ok(UnitsReport(systemd_version="252", units=(*ended, *failed, *lasting))))
    config = Config(units=UnitsConfig(patterns=("gone.service", "vllm*.service")))
    found = samples(exposition(many, config, history=history))
    shown = {dict(labels)["unit"] for name, labels in found if name == "llmhost_unit_failures_total"}
    assert shown == {each.id.name for each in lasting} | {f"run-r{n:03}.service" for n in range(140 - 77, 140)}
    assert shown == {dict(labels)["unit"] for name, labels in found if name == "llmhost_unit_active_state"}
    assert not any(name == "llmhost_dropped_series_total" for name, _ in found)
    few = samples(exposition(many, replace(config, series=SeriesConfig(max_per_family=33)), history=history))
    cut = {dict(labels)["unit"] for name, labels in few if name == "llmhost_unit_failures_total"}
    assert cut == {"gone.service", "vllm-linked.service", "vllm-off.service", "vllm.service"}
    assert few["llmhost_dropped_series_total", (("family", "llmhost_unit_failures_total"),)] == 60 - 33


def test_a_stuck_call_is_named() -> None:
    stuck = Failed(Cause.TIMEOUT, "late", StuckCall("nvmlDeviceGetMemoryInfo", "3", 4.5))
    found = samples(exposition(replace(HOST, nvml=stuck)))
    assert found["llmhost_nvml_stuck_call_seconds", (("call", "nvmlDeviceGetMemoryInfo"), ("gpu", "3"))] == 4.5
    assert not any(name.startswith("llmhost_gpu") for name, _ in found)


def test_a_configured_number_of_gpus_is_the_expected_one() -> None:
    assert samples(exposition(HOST))["llmhost_gpus_expected", ()] == 1
    assert samples(exposition(HOST, config=Config(gpus=GpusConfig(expected=8))))["llmhost_gpus_expected", ()] == 8


def test_resyncs_are_counted_by_reason() -> None:
    units = Ok(UnitsReport(systemd_version="252", units=(), resyncs=(("reload", 3),)))
    assert samples(exposition(replace(HOST, units=units)))["llmhost_resyncs_total", (("reason", "reload"),)] == 3


def test_openmetrics_is_served_to_those_who_ask_and_says_the_same() -> None:
    made = exposition(HOST)
    text, text_type = encode(made.metrics(0), accept="text/plain;version=0.0.4")
    page, page_type = encode(made.metrics(0), accept="application/openmetrics-text; version=1.0.0; charset=utf-8")
    assert text_type.startswith("text/plain; version=0.0.4")
    assert page_type.startswith("application/openmetrics-text; version=1.0.0")
    assert page.endswith(b"# EOF\n")

    def series_of(families: object) -> set[tuple[str, tuple[tuple[str, str], ...]]]:
        return {
            (sample.name, tuple(sorted(sample.labels.items())))
            for family in families  # type: ignore[attr-defined]
            for sample in family.samples
            if sample.name.startswith("llmhost_")
        }

    openmetrics = parse_openmetrics(page.decode())  # type: ignore[no-untyped-call]
    assert series_of(openmetrics) == series_of(parse_text(text.decode()))  # so no `_created` either
    assert len(series_of(parse_text(text.decode()))) > 50


def test_names_pick_families() -> None:
    page, _ = encode(exposition(HOST).metrics(0), accept="", names=("llmhost_gpus", "llmhost_collector_failures_total"))
    assert [line for line in page.decode().splitlines() if not line.startswith("#")] == [
        "llmhost_gpus 1.0",
        'llmhost_collector_failures_total{cause="timeout",collector="nvml"} 2.0',
    ]


def test_one_engines_nonsense_costs_no_other_its_series() -> None:
    def answer(name: str, *given: EngineSample) -> EngineAnswer:
        return EngineAnswer(unit=UnitId(name), engine="vllm", endpoint="http://127.0.0.1:8000", samples=Ok(given))

    bad = EngineSample(model="m", engine_index="0", generation_tokens=math.inf, finished={"stop": math.inf})
    twice = EngineSample(model="m", engine_index="0", generation_tokens=5.0)
    good = EngineSample(model="m", engine_index="0", generation_tokens=7.0)
    engines = EnginesReport(
        answers=(answer("a.service", bad), answer("b.service", twice, twice), answer("c.service", good))
    )
    found = samples(exposition(replace(HOST, engines=Ok(engines))))
    tokens = {
        dict(labels)["unit"]: value
        for (name, labels), value in found.items()
        if name == "llmhost_engine_generation_tokens_total"
    }
    assert tokens == {"b.service": 5.0, "c.service": 7.0}


def test_states_that_may_be_among_unlisted_files_are_not_zero() -> None:
    segment = Segment(
        id=SegmentId(1, 2),
        path="psm_00000000",
        kind=SegmentKind.PYTHON_SHM,
        creator_pid=None,
        size_bytes=10,
        allocated_bytes=4096,
        changed_at=1.0,
        uid=0,
        holders=frozenset({ProcessId(5, 1000)}),
        inspected_at=1.0,
    )

    def of(unlisted: int) -> dict[str, float]:
        shared = SharedMemory(
            read_at=1.0,
            size_bytes=None,
            used_bytes=8192,
            inodes=None,
            inodes_used=None,
            segments=(segment,),
            unlisted=unlisted,
            uninspected=0,
        )
        found = samples(exposition(replace(HOST, shm=Ok(shared))))
        return {dict(labels).get("state", name): value for (name, labels), value in found.items() if name in SHM}

    assert of(0) == {"live": 1, "stale": 0, "unheld": 0, "unknown": 0, HIDDEN: 4096, UNLISTED: 0}
    assert of(3) == {"live": 1, UNLISTED: 3}


def test_a_watched_start_gives_its_duration_and_the_budget_of_the_next() -> None:
    endpoint = "http://127.0.0.1:8000"
    answered = EngineAnswer(unit=UnitId("vllm.service"), engine="vllm", endpoint=endpoint, samples=Ok(()))
    units = [unit(settings=settings("vllm serve m")), unit("other.service")]
    taken = replace(snapshot(gpus=[], processes=[], units=units), engines=Ok(EnginesReport(answers=(answered,))))
    ready = Readiness(invocation_id="a", start_seen=True, seconds={endpoint: 700.0}, past_seconds=(700.0,))
    found = samples(exposition(taken, history=History(readiness={UnitId("vllm.service"): ready})))
    unit_labels = (("manager", "system"), ("unit", "vllm.service"))
    labels = (("endpoint", endpoint), ("engine", "vllm"), *unit_labels)
    assert found["llmhost_engine_ready_seconds", labels] == 700
    assert found["llmhost_unit_ready_budget_seconds", unit_labels] == 2100
    assert sum(name == "llmhost_unit_ready_budget_seconds" for name, _ in found) == 1  # of units that run an engine


def test_a_state_that_an_unknown_tracker_may_be_in_is_not_zero() -> None:
    code = "from multiprocessing.resource_tracker import main;main(5)"
    argv = ("python3", "-c", code)
    parent = process(10, pipes={3: 77})
    attached = process(11, ppid=10, role=Role.TRACKER, argv=argv, pipes={5: 77})
    unknown = process(12, ppid=10, role=Role.TRACKER, argv=argv, pipes=None)

    def states(*processes: Process) -> dict[str, float]:
        found = samples(exposition(snapshot(gpus=[], processes=processes, units=[])))
        return {dict(labels)["state"]: value for (name, labels), value in found.items() if name in TRACKERS}

    assert states(parent, attached) == {"attached": 1, "orphaned": 0, "detached": 0, "zombie": 0}
    assert states(parent, attached, unknown) == {"attached": 1}
