"""Units that loop, and units that systemd has given up: what is found of them, beside what is shown of them."""

from dataclasses import replace

from tests.decide.test_health import SERVE, VLLM, found
from tests.fakes.values import GIB, ended, gpu, in_service, memory, process, report, snapshot, started, unit

from llmhost.config.schema import Config
from llmhost.derive.host_view import host_view
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import Trigger, UnitHistory
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok
from llmhost.views.status.units import details_of
from llmhost.views.text import Style


def looping(last_took: float | None) -> UnitHistory:
    """Make a history of seven runs within 3 minutes, the last of which began 13 s ago."""
    at = 1_767_225_600.0
    runs = [(180.0, 20.0), *((ago, 20.0) for ago in (150.0, 120.0, 90.0, 60.0, 35.0)), (13.0, last_took)]
    starts = tuple(
        started(
            f"{ago}",
            trigger=Trigger.AUTO if ago < 180 else Trigger.MANUAL,
            at=at - ago,
            end=None if took is None else replace(ended("exit-code", took), at=at - ago + took),
        )
        for ago, took in runs
    )
    return UnitHistory(last_seen_at=at, invocation_id="13.0", starts=starts)


def test_a_loop_is_the_first_finding_also_between_two_deaths() -> None:
    worker = process(20, in_service("vllm-b.service"), start=100)
    down = unit("a.service", active="failed", sub="failed", result="exit-code")
    up = unit(settings=SERVE, invocation_id="13.0", nrestarts=6)
    known = History(units={VLLM: looping(None)})
    main = process(10, in_service("vllm-b.service"), start=1000)
    beside = unit("vllm-b.service", main_pid=10)
    everything = found(units=[down, up, beside], processes=[main, worker], history=known)
    assert everything == [
        ("unit_loops", "vllm.service", "loops: 7th start in 3 min, 6 failed, the last after 20 s with exit-code"),
        ("unit_failed", "a.service", "has failed (exit-code)"),
        ("leftovers", "vllm-b.service", "a process of an ended run is still alive"),
    ]
    waits = replace(up, active_state="activating", sub_state="auto-restart")
    full = gpu(0, memory=memory(40 * GIB), holders=Ok(()))
    ((_, _, what),) = found(units=[waits], history=History(units={VLLM: looping(3.0)}), gpus=[full])
    assert what == (
        "loops: 7th start in 3 min, all failed, the last after 3.0 s with exit-code; waits to be restarted; "
        "a start now would fail"
    )
    # another unit starts it again and again, and it looks down between; one that Restart= has left alone has failed
    starts = tuple(replace(start, trigger=Trigger.UNIT) for start in looping(3.0).starts)
    upheld = History(units={VLLM: replace(looping(3.0), starts=starts)})
    failed = replace(up, active_state="failed", sub_state="failed", result="exit-code")
    loops = "loops: 7th start in 3 min, all failed, the last after 3.0 s with exit-code"
    for given, history, kind, said in (
        (failed, upheld, "unit_loops", f"{loops}; is down now"),
        (replace(failed, active_state="inactive"), upheld, "unit_loops", f"{loops}; is down now"),
        (failed, History(units={VLLM: looping(3.0)}), "unit_failed", "has failed (exit-code)"),
    ):
        assert found(units=[given], history=history) == [(kind, "vllm.service", said)]
    # it was stopped: no loop any more
    assert found(units=[unit(active="inactive", sub="dead", unit_file_state="disabled")], history=known) == []


def test_that_systemd_has_given_up_is_said_with_what_lifts_it() -> None:
    limit = replace(SERVE, restart="on-failure", start_limit_burst=5, start_limit_interval_seconds=7200.0)
    failed = unit(active="failed", sub="failed", result="exit-code", invocation_id="5", settings=limit)
    starts = tuple(
        started(f"{number}", began_monotonic=500.0 + 100 * number, end=ended("exit-code", 20.0))
        for number in range(1, 6)
    )
    history = History(units={VLLM: UnitHistory(last_seen_at=0.0, invocation_id="5", starts=starts)})
    ((kind, _, what),) = found(units=[failed], history=history)
    given_up = "systemd has given up after 5 starts in 7 min: its start limit is 5 in 2 h"
    assert kind == "unit_failed"
    assert what == f"has failed (exit-code); {given_up}; `systemctl reset-failed vllm.service` first"
    # nothing green is said beside it, though all memory is free
    view = host_view(snapshot(gpus=[gpu(0)], processes=[], units=[failed]), history, Config())
    assert isinstance(view.facts.units, Ok)
    (facts,) = view.facts.units.value
    assert facts.startable == Ok(False)
    assert [text for text, style in details_of(facts, view) if style in (Style.GOOD, Style.BAD)] == [
        f"{given_up}; `systemctl reset-failed vllm.service` first",
        "not startable: its start limit refuses it",
    ]
    # the limit's interval is over, and the driver's library does not fit: that is what refuses a start now
    passed = replace(failed, settings=replace(limit, start_limit_interval_seconds=450.0))
    nvml = Ok(replace(report([gpu(0)]), driver_mismatch=True))
    later = replace(snapshot(processes=[], units=[passed]), nvml=nvml, at_monotonic=1100.0)
    view = host_view(later, history, Config())
    assert isinstance(view.facts.units, Ok)
    assert [text for text, _ in details_of(view.facts.units.value[0], view)][-1] == (
        "not startable: the driver's library does not fit the loaded driver"
    )
    of_user = replace(failed, id=UnitId("vllm.service", "user@1000"))
    known = {of_user.id: history.units[VLLM]}
    ((_, _, what),) = found(units=[of_user], history=History(units=known))
    assert what.endswith("`systemctl --user reset-failed vllm.service` first")
