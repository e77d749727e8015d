"""Whatever names there are, the status fits its width and cannot be made to say what is not so."""

import json
import re
from dataclasses import replace

import pytest
from tests.fakes.hostile_names import NAMES, view_of
from tests.fakes.values import (
    GIB,
    HOST,
    ended,
    gpu,
    held,
    in_service,
    memory,
    process,
    snapshot,
    started,
    unit,
)

from llmhost.config.schema import Config, UnitsConfig
from llmhost.decide.health import health_of
from llmhost.derive.attribution import HolderKind
from llmhost.derive.facts import derive
from llmhost.derive.host_view import host_view
from llmhost.derive.orphans import Orphan
from llmhost.model.engine import EngineSample, EnginesReport
from llmhost.model.guard_run import GuardRun, GuardVerdict
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import Short, Trigger, UnitHistory, Verdict
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.process import Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok
from llmhost.model.unit import Unit
from llmhost.views.page.document import About, status_page
from llmhost.views.page.leftovers import processes_section
from llmhost.views.page.units import units_section
from llmhost.views.status.as_json import status_json
from llmhost.views.status.gpus import holder_groups
from llmhost.views.status.text import status_text
from llmhost.views.status.units import details_of, start_lines, why_none
from llmhost.views.text import Style, columns


@pytest.mark.parametrize("width", [40, 80, 120])
@pytest.mark.parametrize("name", NAMES)
def test_no_name_makes_a_line_too_wide_or_moves_the_cursor(name: str, width: int) -> None:
    view = view_of(name)
    for colour in (False, True):
        text = status_text(view, health_of(view), width=width, colour=colour)
        for style in (*Style, None) if colour else ():
            text = text.replace(f"\x1b[{style.value if style is not None else 0}m", "")
        lines = text.splitlines()
        assert all(line.isprintable() for line in lines)
        assert max(columns(line) for line in lines) <= width
        assert lines[0] == "not healthy"
        assert sum(line.strip() == "healthy" for line in lines) == 0


@pytest.mark.parametrize("name", NAMES)
def test_json_holds_every_name_as_it_is(name: str) -> None:
    view = view_of(name)
    assert status_json(view, health_of(view)).isascii()


def test_a_number_that_json_does_not_have_is_null() -> None:
    view = view_of("a.service")
    assert isinstance(view.snapshot.engines, Ok)
    answer = view.snapshot.engines.value.answers[0]
    odd = EngineSample(model="m", engine_index="0", requests_running=float("nan"), generation_tokens=float("inf"))
    engines = Ok(EnginesReport(answers=(replace(answer, samples=Ok((odd,))),)))
    odd_view = replace(view, snapshot=replace(view.snapshot, engines=engines))
    text = status_json(odd_view, health_of(odd_view))
    assert '"requests_running": null' in text
    assert '"generation_tokens": null' in text


def test_the_last_run_of_the_guard_is_shown() -> None:
    view = view_of("a.service")
    totals = {GuardVerdict.HELD: 1, GuardVerdict.FREE: 6}
    run = GuardRun(
        unit=UnitId("a.service"),
        at=view.snapshot.at - 60,
        wait_seconds=34.0,
        verdict=GuardVerdict.FREE,
        runs_total=totals,
    )
    guarded = replace(view, snapshot=replace(view.snapshot, guard_runs=Ok((run,))))
    assert "    guard 60 s ago: free after 34 s; its runs: 6 free, 1 held\n" in status_text(guarded, health_of(guarded))
    (unit_document,) = json.loads(status_json(guarded, health_of(guarded)))["units"]
    assert unit_document["guard"] == {
        "at": run.at,
        "wait_seconds": 34.0,
        "verdict": "free",
        "runs": {"held": 1, "free": 6},
    }
    (without,) = json.loads(status_json(view, health_of(view)))["units"]
    assert without["guard"] is None


def test_memory_is_shared_out_by_kind_and_unit() -> None:
    held_here = Ok((held(1, 10 * GIB), held(2, 20 * GIB), held(3, None), held(4, 5 * GIB)))
    members = [process(1, in_service("a.service")), process(2, in_service("a.service")), process(3), process(4)]
    gpus = [gpu(0, memory=memory(60 * GIB), holders=held_here)]
    at = snapshot(gpus=gpus, processes=members, units=[unit("a.service")])
    attribution = derive(at, Config(), History()).attribution
    assert isinstance(attribution, Ok)
    holders = attribution.value[GpuUuid("GPU-0")]
    assert isinstance(holders, Ok)
    found = [(group.kind, group.unit, group.pids, group.used_bytes) for group in holder_groups(holders.value)]
    assert found == [
        (HolderKind.CURRENT, UnitId("a.service"), (1, 2), 30 * GIB),
        (HolderKind.OTHER, None, (3, 4), None),  # of one of them it is not known
    ]


def test_orphans_are_listed_oldest_first_in_the_text_and_on_the_page() -> None:
    view = view_of("a.service", host=Ok(HOST))
    orphans = tuple(
        Orphan(process=process(pid), engine="vllm", seconds=seconds, inferred=False)
        for pid, seconds in ((101, 30.0), (102, 300.0), (103, 60.0))
    )
    view = replace(view, facts=replace(view.facts, orphans=Ok(orphans)))
    listed = re.findall(r"^    (10[123]) ", status_text(view, health_of(view)), re.MULTILINE)
    assert listed == re.findall(r"<li>(10[123]) ", processes_section(view)) == ["102", "103", "101"]


def test_an_orphan_is_shown_with_its_unit_and_gpu_and_the_sum_is_told() -> None:
    title = "VLLM::Worker_TP0"
    workers = [
        process(pid, in_service("vllm-a.service"), comm=title[:15], argv=(title,), engine="vllm", role=Role.WORKER)
        for pid in (101, 102)
    ]
    gpus = [gpu(index, holders=Ok((held(pid, 30 * GIB),))) for index, pid in ((3, 101), (4, 102))]
    view = host_view(snapshot(gpus=gpus, processes=workers, units=[]), History(), Config())
    orphans = tuple(Orphan(process=worker, engine="vllm", seconds=30.0, inferred=False) for worker in workers)
    view = replace(view, facts=replace(view.facts, orphans=Ok(orphans)))
    lines = status_text(view, health_of(view)).splitlines()
    assert "  2 orphans: 60 GiB of GPU memory" in lines
    assert "    101 VLLM::Worker_TP0       vllm-a.service         GPU 3 30 GiB    for 30 s" in lines
    assert "    102 VLLM::Worker_TP0," in status_text(view, health_of(view), width=40).splitlines()
    page = processes_section(view)
    assert "<li>102 <bdi>VLLM::Worker_TP0</bdi> of <bdi>vllm-a.service</bdi>: vllm worker, GPU 4 30 GiB, for" in page


def test_what_only_another_user_can_see_is_told_with_the_headline() -> None:
    healthy = host_view(snapshot(gpus=[gpu()], units=[unit()], processes=[]), History(), Config())
    denied = replace(healthy.snapshot, shm=Failed(Cause.NO_PERMISSION, "/dev/shm"))
    switched_off = replace(healthy.snapshot, shm=NotApplicable("switched off"))
    for view, told in (
        (healthy, "healthy"),
        (replace(healthy, snapshot=switched_off), "healthy"),
        (replace(healthy, snapshot=denied), "healthy, as far as this user can see"),
        (replace(healthy, history_fault="/s: Permission denied"), "healthy, as far as this user can see"),
        (replace(healthy, snapshot=replace(denied, units=Failed(Cause.NO_BUS))), "cannot tell whether all is well"),
        (
            replace(healthy, snapshot=replace(denied, shm=Failed(Cause.NO_SHM))),
            "healthy, as far as can be seen from here",
        ),
    ):
        assert status_text(view, health_of(view)).splitlines()[0] == told
        page = status_page(view, health_of(view), (), About(host_name="h", version="1", age_seconds=0.0))
        assert ("as far as the exporter's user can see" in page) == (told == "healthy, as far as this user can see")
        assert ("as far as can be seen from here" in page) == told.endswith("from here")
    assert "past starts and failures" in status_text(replace(healthy, history_fault="x"), health_of(healthy))


@pytest.mark.parametrize(
    ("units", "looked_for"),
    [
        (
            UnitsConfig(),
            "no service is named vllm*.service, sglang*.service, and none runs a known engine or holds GPU memory",
        ),
        (UnitsConfig(patterns=("qwen@*.service",), discover=False), "no service is named qwen@*.service"),
        (UnitsConfig(patterns=(), discover=False), "units.patterns is empty"),
    ],
)
def test_where_no_unit_is_watched_it_says_what_was_looked_for(units: UnitsConfig, looked_for: str) -> None:
    told = f"none is watched: {looked_for}; name yours under units.patterns in /etc/llmhost.yml"
    seen = snapshot(gpus=[gpu()], units=[], processes=[])
    view = host_view(seen, History(), Config(units=units), config_file="/etc/llmhost.yml")
    assert told in " ".join(status_text(view, health_of(view)).split())
    assert told in units_section(view)


def test_where_processes_are_not_seen_it_does_not_say_that_none_runs_an_engine() -> None:
    seen = snapshot(gpus=[gpu()], units=[], processes=[])
    hidden = "none says that it runs a known engine; others cannot be told by what they run or hold"
    for given, is_hidden in (
        (replace(seen, processes=Failed(Cause.CGROUP_NAMESPACE, "of our own")), True),
        (replace(seen, nvml=Failed(Cause.TIMEOUT)), True),
        (replace(seen, nvml=Failed(Cause.NO_DEVICE)), False),  # there is no GPU memory to hold
    ):
        told = why_none(host_view(given, History(), Config()))
        assert (hidden in told, "holds GPU memory" in told) == (is_hidden, not is_hidden)


def test_an_unknown_that_matters_is_coloured() -> None:
    failed = Failed(Cause.TIMEOUT)
    view = host_view(replace(snapshot(gpus=[gpu()], units=[]), processes=failed, shm=failed), History(), Config())
    text = status_text(view, health_of(view), colour=True)
    assert f"  \x1b[{Style.DOUBT.value}mprocesses\x1b[0m: timeout\n" in text
    assert "  shared memory: timeout\n" in text


def test_a_start_that_the_history_does_not_have_yet_is_said_not_to_be_judged() -> None:
    """The present run began at 9 s, by the monotonic clock, which is at 1000 s."""
    at = 1_767_225_600.0
    before = started("a", trigger=Trigger.AUTO, at=at - 1021, verdict=Verdict.CLEAN, end=ended("exit-code", 8.1))
    record = UnitHistory(last_seen_at=at, invocation_id="a", starts=(before,))

    def told(up: Unit) -> list[str]:
        view = host_view(snapshot(units=[up]), History(units={up.id: record}), Config())
        assert isinstance(view.facts.units, Ok)
        return [text for text, _ in details_of(view.facts.units.value[0], view)]

    up = unit(invocation_id="b")
    assert told(up) == [
        "this start 17 min ago: not judged yet",
        "the start before 17 min ago, auto: clean; ended after 8.1 s with exit-code",
    ]
    last = ["last start 17 min ago, auto: clean; ended after 8.1 s with exit-code"]
    assert told(replace(up, invocation_id="a")) == last
    assert told(replace(up, active_state="activating", sub_state="auto-restart")) == last


@pytest.mark.parametrize(
    ("verdict", "missing", "said"),
    [
        (
            Verdict.RESIDENT,
            {"0": GIB, "1": 76 * GIB, "2": 76 * GIB},
            "; short of 1.0 GiB on GPU 0, 76.0 GiB on each of GPUs 1, 2",
        ),
        (Verdict.RESIDENT, {"0": 0, "1": 3 * GIB}, "; short of 3.0 GiB on GPU 1"),
        (Verdict.RESIDENT, {"0": 0, "1": 0}, "; enough was free nevertheless"),
        (Verdict.RESIDENT, {}, ""),  # what it needs is not known
        (Verdict.CLEAN, {"0": GIB}, "; short of 1.0 GiB on GPU 0"),
        (Verdict.CLEAN, {"0": 0}, ""),
    ],
)
def test_a_start_is_told_with_what_it_lacked(verdict: Verdict, missing: dict[str, int], said: str) -> None:
    short = tuple(Short(uuid=GpuUuid(f"GPU-{gpu}"), gpu=gpu, short_bytes=size) for gpu, size in missing.items())
    view = host_view(snapshot(), History(), Config())
    start = started("a", at=view.snapshot.at - 20, verdict=verdict, short=short)
    assert [text for text, _ in start_lines("last start", start, view)] == [f"last start 20 s ago: {verdict}{said}"]
