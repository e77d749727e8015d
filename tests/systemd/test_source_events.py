"""Events of units as they happen, against a fake systemd."""

import threading
from collections.abc import Callable
from functools import partial
from itertools import groupby

import pytest
from tests.fakes.bus import MANAGER, MANAGER_PATH, Error, FakeSystemd, PrivateBus
from tests.fakes.unit_source import (
    VLLM,
    bus,
    connection_of,
    eventually,
    read,
    session_of,
    source_on,
    units,
    wait_until,
    watched_by,
)

from llmhost.model.unit_event import UnitEvent
from llmhost.sources.systemd.units import units as units_module

assert bus is not None  # a fixture

A, B, C = (letter * 32 for letter in "abc")
FILE = [("/etc/systemd/system/vllm.service", "enabled")]


class EventLog:
    """Takes events, and says what they are in short: name, load state or state, InvocationID's first, gap."""

    def __init__(self) -> None:
        self.events: list[UnitEvent] = []
        self.thread: threading.Thread | None = None

    def __call__(self, event: UnitEvent) -> None:
        self.events.append(event)
        self.thread = threading.current_thread()

    def of(self, name: str = "vllm.service") -> list[tuple[str, str, bool]]:
        return [
            (
                event.unit.active_state if event.unit.load_state == "loaded" else event.unit.load_state,
                event.unit.invocation_id[:1],
                event.gap,
            )
            for event in list(self.events)
            if event.unit.id.name == name
        ]

    def has(self, name: str, event: tuple[str, str, bool]) -> bool:
        return event in self.of(name)


def test_it_connects_and_reports_without_being_read(bus: PrivateBus) -> None:
    log = EventLog()
    clock: Callable[[], float] = lambda: 7.0  # noqa: E731
    with FakeSystemd(bus, [VLLM]), source_on(bus, on_event=log, clock=clock, wall_clock=lambda: 1007.0) as source:
        source.start()
        source.start()
        wait_until(lambda: log.events)
        assert log.of() == [("active", "", True)]
        assert (log.events[0].at, log.events[0].at_monotonic) == (1007.0, 7.0)
        assert log.thread is source._thread
        source.close()
        source.start()


def test_each_change_is_reported_once_and_in_order(bus: PrivateBus) -> None:
    log = EventLog()
    other = {"Id": "vllm-b.service"}
    with FakeSystemd(bus, [VLLM, other]) as systemd, source_on(bus, on_event=log) as source:
        read(source)
        before = len(log.events)
        for count in range(2, 12):
            systemd.change("vllm.service", NRestarts=count, Job=[count, "/"])
            systemd.change("vllm-b.service", NRestarts=count)
            systemd.change("vllm.service", StatusText="nothing that is watched")
        wait_until(lambda: len(log.events) >= before + 20)
        read(source)
        events = log.events[before:]
        assert [(event.unit.id.name, event.unit.nrestarts) for event in events] == [
            (name, count) for count in range(2, 12) for name in ("vllm.service", "vllm-b.service")
        ]
        assert [event.unit.job for event in events[::2]] == list(range(2, 12))
        assert not any(event.gap for event in events)


def test_a_handler_may_fail_and_the_next_event_comes(bus: PrivateBus, caplog: pytest.LogCaptureFixture) -> None:
    log = EventLog()

    def fails(event: UnitEvent) -> None:
        log(event)
        raise ZeroDivisionError

    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, on_event=fails) as source:
        read(source)
        systemd.change("vllm.service", NRestarts=2)
        eventually(source, lambda found: found["vllm.service"].nrestarts == 2)
        assert len(log.events) == 2
        assert connection_of(source).skipped == 0
    assert caplog.messages == ["a bug in the handler of unit events: an event of vllm.service is lost"]


def run_once(systemd: FakeSystemd, invocation_id: str) -> None:
    """Start a unit that is not loaded, fail, and let go of it, all at once."""
    systemd.load({**VLLM, "ActiveState": "inactive", "NRestarts": 0, "MainPID": 0})
    systemd.change("vllm.service", InvocationID=invocation_id, MainPID=9)
    systemd.change("vllm.service", ActiveState="active", SubState="running")
    systemd.change("vllm.service", ActiveState="failed", SubState="failed", MainPID=0, Result="exit-code")
    systemd.unload("vllm.service")


def test_a_unit_that_comes_and_goes_faster_than_it_can_be_read_is_reported(bus: PrivateBus) -> None:
    log = EventLog()
    with FakeSystemd(bus, [], FILE) as systemd, source_on(bus, on_event=log) as source:
        assert units(source)["vllm.service"].load_state == "stub"
        assert log.of() == [("stub", "", True)]
        for letter in (A, B, C):
            run_once(systemd, letter)
        wait_until(lambda: log.of()[-2:] == [("failed", "c", False), ("stub", "", False)])
        # A state is told again where the unit was read in it, so that its settings are known.
        runs = [entry for entry, _ in groupby(log.of()[1:]) if entry[1] or entry[0] == "stub"]
        expected = []
        for letter in "abc":
            expected += [("inactive", letter, False), ("active", letter, False), ("failed", letter, False)]
            expected += [("stub", "", False)]
        assert runs == expected


def test_an_answer_that_is_overtaken_by_a_start_is_no_end(bus: PrivateBus) -> None:
    log = EventLog()
    running = {**VLLM, "InvocationID": A}
    with FakeSystemd(bus, [running], FILE) as systemd, source_on(bus, on_event=log) as source:
        read(source)
        systemd.answers["GetUnitFileState"] = 0.3
        systemd.unload("vllm.service")
        wait_until(lambda: "GetUnitFileState(vllm.service)" in systemd.calls)
        systemd.load({**VLLM, "ActiveState": "inactive"})
        systemd.change("vllm.service", ActiveState="active", InvocationID=B)
        eventually(source, lambda found: found["vllm.service"].invocation_id == B)
        # "" is the unit as it was loaded; it is told only where it was read before it was started
        assert [entry for entry in log.of() if entry[1] or entry[0] == "stub"] == [
            ("active", "a", True),
            ("stub", "", False),
            ("active", "b", False),
        ]


def test_a_unit_that_comes_into_being_is_reported_as_one_that_was_not_there(bus: PrivateBus) -> None:
    log = EventLog()
    with (
        FakeSystemd(bus, [VLLM]) as systemd,
        source_on(bus, "vllm*.service", discover=True, on_event=log) as source,
    ):
        read(source)
        systemd.load({"Id": "vllm-new.service", "InvocationID": A, "NRestarts": 3})
        systemd.load({"Id": "engine.service", "InvocationID": B, "ExecStart": [["vllm"]]})
        systemd.load({"Id": "vllm-idle.service", "ActiveState": "inactive"})
        found = eventually(source, lambda found: {"vllm-new.service", "engine.service"} <= set(found))
        assert "vllm-idle.service" in found
        assert log.of("vllm-new.service") == [("not-found", "", True), ("active", "a", True)]
        assert log.of("engine.service") == [("not-found", "", True), ("active", "b", True)]
        assert log.of("vllm-idle.service") == [], "anybody can have units loaded without end"
        systemd.change("vllm-idle.service", ActiveState="active", InvocationID=C)
        wait_until(lambda: log.of("vllm-idle.service"))
        assert log.of("vllm-idle.service") == [("not-found", "", True), ("active", "c", False)]


def test_what_holds_gpu_memory_was_there_before(bus: PrivateBus) -> None:
    log = EventLog()
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, discover=True, on_event=log) as source:
        read(source)
        systemd.load({"Id": "other.service", "InvocationID": A, "ExecStart": [["nginx"]]})
        watched = watched_by(source)
        wait_until(lambda: "other.service" in watched._recently_loaded)
        source.watch(["other.service"])
        eventually(source, lambda found: "other.service" in found)
        assert log.of("other.service") == [("active", "a", True)]


def test_a_reload_reports_nothing_but_what_it_changes(bus: PrivateBus) -> None:
    log = EventLog()
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, on_event=log) as source:
        read(source)
        systemd.reload()
        wait_until(lambda: dict(source._resyncs)["reload"] == 1)
        read(source)
        assert log.of() == [("active", "", True)]
        systemd.reload([{**VLLM, "RestartUSec": 30_000_000}, {"Id": "vllm-new.service"}])
        found = eventually(source, lambda found: len(found) == 2)
        assert log.of() == [("active", "", True), ("active", "", False)]
        assert log.of("vllm-new.service") == [("active", "", True)]
        settings = found["vllm.service"].settings
        assert settings is not None
        assert settings.restart_delay_seconds == 30.0


def test_another_systemd_or_connection_is_reported_once_with_a_gap(bus: PrivateBus) -> None:
    log = EventLog()
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, on_event=log) as source:
        read(source)
        systemd.leave()
        systemd.enter()
        wait_until(lambda: log.of() == [("active", "", True)] * 2 or len(log.events) > 2)
        systemd.change("vllm.service", NRestarts=5)
        wait_until(lambda: len(log.events) == 3)
        assert [event.gap for event in log.events] == [True, True, False]
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, on_event=log) as source:
        read(source)
        bus.kill()
        bus.start()
        with FakeSystemd(bus, [VLLM]) as after:
            wait_until(lambda: dict(source._resyncs)["bus"] == 1)
            after.change("vllm.service", NRestarts=6)
            wait_until(lambda: log.events[-1].unit.nrestarts == 6)
            assert [event.gap for event in log.events[3:]] == [True, True, False]


def test_what_is_watched_no_longer_is_reported_no_longer(bus: PrivateBus) -> None:
    log = EventLog()
    with FakeSystemd(bus, [VLLM, {"Id": "other.service"}]) as systemd, source_on(bus, on_event=log) as source:
        read(source)
        source.configure(patterns=("other.service",), discover=False)
        eventually(source, lambda found: list(found) == ["other.service"])
        systemd.change("vllm.service", NRestarts=2)
        systemd.change("other.service", NRestarts=2)
        wait_until(lambda: log.events[-1].unit.nrestarts == 2)
        assert len(log.of()) == 1
        assert len(log.of("other.service")) == 2


def test_after_a_message_that_cannot_be_understood_there_is_a_gap(bus: PrivateBus) -> None:
    log = EventLog()
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, on_event=log) as source:
        read(source)
        systemd.set("vllm.service", InvocationID=A)
        session = session_of(source)
        assert source._loop is not None
        source._loop.call_soon_threadsafe(session._on_skipped)
        wait_until(lambda: len(log.events) == 2)
        assert log.of() == [("active", "", True), ("active", "a", True)]
        systemd.set("vllm.service", UnitFileState="enabled")
        systemd.emit(MANAGER_PATH, MANAGER, "UnitFilesChanged")
        wait_until(lambda: len(log.events) == 3)
        assert log.of()[2] == ("active", "a", False), "no signal was missed since"


def test_a_configured_unit_that_does_not_exist_is_reported_as_that(bus: PrivateBus) -> None:
    log = EventLog()
    with FakeSystemd(bus, []) as systemd, source_on(bus, "gone.service", on_event=log) as source:
        read(source)
        assert log.of("gone.service") == [("not-found", "", True)]
        systemd.load({"Id": "gone.service", "ActiveState": "inactive"})
        systemd.change("gone.service", ActiveState="active", InvocationID=A)
        systemd.unload("gone.service")
        wait_until(lambda: log.of("gone.service")[-1] == ("not-found", "", False))
        assert [entry for entry in log.of("gone.service") if entry[1]] == [("active", "a", False)]


INSTANCE = "vllm@a.service"
TEMPLATE = [("/etc/systemd/system/vllm@.service", "static")]


def live(systemd: FakeSystemd, invocation_id: str, name: str = INSTANCE) -> None:
    """Load, start, end and let go of a unit, all at once."""
    systemd.load({"Id": name, "ActiveState": "inactive", "MainPID": 0})
    systemd.change(name, InvocationID=invocation_id, MainPID=9)
    systemd.change(name, ActiveState="failed", SubState="failed", MainPID=0, Result="exit-code")
    systemd.unload(name)


@pytest.mark.parametrize("files", [TEMPLATE, []], ids=["instance", "transient"])
def test_a_unit_that_was_gone_before_it_was_read_is_seen_from_the_next_time_on(
    bus: PrivateBus, files: list[tuple[str, str]]
) -> None:
    log = EventLog()
    with FakeSystemd(bus, [], files) as systemd, source_on(bus, "vllm@*.service", on_event=log) as source:
        read(source)
        with systemd._lock:  # so that it is gone before any answer
            live(systemd, A)
        wait_until(lambda: INSTANCE in watched_by(source)._missed)
        assert units(source) == {}
        assert log.events == []
        for letter in (B, C):
            with systemd._lock:
                live(systemd, letter)
            wait_until(partial(log.has, INSTANCE, ("failed", letter[0], False)))
            read(source)
        systemd.reload()
        wait_until(lambda: dict(source._resyncs)["reload"] == 1)
        read(source)
        with systemd._lock:
            live(systemd, "d" * 32)
        wait_until(partial(log.has, INSTANCE, ("failed", "d", False)))


def test_of_units_that_were_gone_before_they_were_read_the_last_ones_are_followed(
    bus: PrivateBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(units_module, "MAX_MISSED", 2)
    names = [f"vllm@{number}.service" for number in range(3)]
    with FakeSystemd(bus, [], TEMPLATE) as systemd, source_on(bus, "vllm@*.service") as source:
        read(source)
        for name in names:
            with systemd._lock:
                live(systemd, A, name)
            wait_until(partial(watched_by(source)._missed.get, name))
        assert list(watched_by(source)._missed) == names[1:]
        source.configure(patterns=("other.service",), discover=False)
        wait_until(lambda: not watched_by(source)._missed)


def test_a_unit_that_is_loaded_while_a_reload_is_caught_up_with_stays_watched(bus: PrivateBus) -> None:
    log = EventLog()
    ran = {"Id": INSTANCE, "ActiveState": "active", "InvocationID": A}
    with FakeSystemd(bus, [ran], TEMPLATE) as systemd, source_on(bus, "vllm@*.service", on_event=log) as source:
        read(source)
        systemd.unload(INSTANCE)
        eventually(source, lambda found: found[INSTANCE].load_state == "stub")
        listed = systemd.calls.count("ListUnitFilesByPatterns([], ['vllm@*.service'])")
        systemd.answers["ListUnitFilesByPatterns"] = 0.5
        systemd.reload()
        wait_until(lambda: systemd.calls.count("ListUnitFilesByPatterns([], ['vllm@*.service'])") > listed)
        systemd.load({"Id": INSTANCE, "ActiveState": "inactive"})  # too late for the list of units
        wait_until(lambda: log.of(INSTANCE)[-1] == ("inactive", "", False))
        read(source)
        systemd.change(INSTANCE, ActiveState="active", InvocationID=B)
        wait_until(lambda: log.of(INSTANCE)[-1] == ("active", "b", False))
        assert units(source)[INSTANCE].invocation_id == B


def test_a_unit_that_could_not_be_read_is_read_at_its_next_signal(bus: PrivateBus) -> None:
    log = EventLog()
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, "vllm.service", on_event=log) as source:
        systemd.answers["GetAll"] = Error()
        source.start()
        wait_until(lambda: source._ever_synced)
        assert log.of() == []
        del systemd.answers["GetAll"]
        systemd.change("vllm.service", InvocationID=B)
        wait_until(lambda: log.has("vllm.service", ("active", "b", True)))
        systemd.change("vllm.service", InvocationID=C)
        wait_until(lambda: log.has("vllm.service", ("active", "c", False)))
