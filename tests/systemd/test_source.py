"""The source against a systemd that does as it is told, on a real bus of its own."""

import contextlib
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from dbus_next.signature import Variant
from tests.fakes.bus import (
    MANAGER,
    MANAGER_PATH,
    MISSING,
    PROPERTIES,
    SERVICE,
    SILENCE,
    UNIT,
    Error,
    FakeSystemd,
    PrivateBus,
)
from tests.fakes.bus_peer import Peer
from tests.fakes.unit_properties import unit_path

from llmhost.model.reading import Cause
from llmhost.model.unit import Unit, UnitsReport
from llmhost.sources.base import SourceError
from llmhost.sources.systemd.source import SystemdSource

VLLM: dict[str, Any] = {"Id": "vllm.service", "MainPID": 100, "NRestarts": 1}
GLOBS = ("vllm.service", "vllm-*.service", "vllm@*.service")


@contextlib.contextmanager
def source_on(bus: PrivateBus, *patterns: str, **settings: Any) -> Iterator[SystemdSource]:  # noqa: ANN401
    settings = {
        "discover": False,
        "is_engine_command": lambda argv: "vllm" in argv,
        "call_timeout_seconds": 5.0,
        **settings,
    }
    source = SystemdSource(patterns=patterns or GLOBS, address=bus.address, **settings)
    try:
        yield source
    finally:
        source.close()
        assert source._thread is None or not source._thread.is_alive()


def read(source: SystemdSource, seconds: float = 5.0) -> UnitsReport:
    return source.read(time.monotonic() + seconds)


def units(source: SystemdSource, seconds: float = 5.0) -> dict[str, Unit]:
    return {unit.id.name: unit for unit in read(source, seconds).units}


def fault(source: SystemdSource, seconds: float = 5.0) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(source, seconds)
    return caught.value


def eventually(
    source: SystemdSource, condition: Callable[[dict[str, Unit]], bool], seconds: float = 5.0
) -> dict[str, Unit]:
    """Read until it holds; signals arrive when they arrive."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(SourceError):
            found = units(source)
            if condition(found):
                return found
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


def sent(source: SystemdSource) -> int:
    assert source._session is not None
    assert source._session.bus is not None
    return source._session.bus.sent


@pytest.fixture(name="bus")
def fixture_bus() -> Iterator[PrivateBus]:
    with PrivateBus() as bus:
        yield bus


def test_loaded_units_that_match_are_reported_by_name(bus: PrivateBus) -> None:
    loaded = [VLLM, {"Id": "vllm@b.service"}, {"Id": "vllm@a.service"}, {"Id": "other.service"}, {"Id": "vllm.socket"}]
    with FakeSystemd(bus, loaded) as systemd, source_on(bus) as source:
        report = read(source)
        assert [unit.id.name for unit in report.units] == ["vllm.service", "vllm@a.service", "vllm@b.service"]
        assert report.units[0].nrestarts == 1
        assert report.systemd_version == "252 (fake)"
        assert report.resyncs == (("bus", 0), ("reload", 0), ("systemd", 0))
        assert systemd.touched == []


def test_a_read_sends_nothing_when_nothing_changed(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]), source_on(bus) as source:
        first = read(source)
        before = sent(source)
        assert [read(source) for _ in range(10)] == [first] * 10
        assert sent(source) == before


def test_signals_alone_bring_changes(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        systemd.calls.clear()
        systemd.change("vllm.service", StatusText="loading", NRestarts=2, StateChangeTimestamp=7_000_000)
        found = eventually(source, lambda found: found["vllm.service"].nrestarts == 2)
        assert found["vllm.service"].state_change_at == 7.0
        assert systemd.calls == []


def test_the_control_group_is_asked_for_once_after_a_change_of_state(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        assert units(source)["vllm.service"].control_group == "/system.slice/vllm.service"
        systemd.calls.clear()
        systemd.change("vllm.service", ActiveState="failed", SubState="failed", MainPID=0, ControlGroup="")
        found = eventually(source, lambda found: found["vllm.service"].active_state == "failed")
        assert found["vllm.service"].control_group == ""
        read(source)
        assert systemd.calls == ["GetUnit(vllm.service)", f"Get({SERVICE}, ControlGroup)"]


def test_a_control_group_with_left_over_processes_is_looked_at_until_they_are_gone(bus: PrivateBus) -> None:
    group = "/system.slice/vllm.service"
    dead = {"Id": "vllm.service", "ActiveState": "failed", "ControlGroup": group}
    with FakeSystemd(bus, [dead]) as systemd, source_on(bus) as source:
        assert units(source)["vllm.service"].control_group == group
        systemd.set("vllm.service", ControlGroup="")  # of which no signal tells
        assert units(source)["vllm.service"].control_group == ""


def test_units_that_nobody_watches_cost_no_message(bus: PrivateBus) -> None:
    others = [{"Id": f"other{number}.service"} for number in range(500)]
    with FakeSystemd(bus, [VLLM, *others]) as systemd, source_on(bus) as source:
        read(source)
        assert source._session is not None
        assert source._session.bus is not None
        sent_before, received_before = sent(source), source._session.bus.received
        for number in range(500):
            systemd.change(f"other{number}.service", NRestarts=1)
        systemd.change("vllm.service", NRestarts=2)
        eventually(source, lambda found: found["vllm.service"].nrestarts == 2)
        assert sent(source) == sent_before
        assert source._session.bus.received == received_before + 2  # the pair for the one that is watched


def test_both_signals_of_a_pair_count_together(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        systemd.set("vllm.service", MainPID=200, NRestarts=2, SubState="start")
        systemd.signal_changed("vllm.service", SERVICE, ["MainPID", "NRestarts"])
        watched = source._units()
        assert watched is not None
        entry = watched._entries["vllm.service"]
        wait_until(lambda: entry._staged)
        assert entry._properties["NRestarts"] == 1
        systemd.signal_changed("vllm.service", UNIT, ["SubState"])
        wait_until(lambda: entry._properties["SubState"] == "start")
        assert (entry._properties["NRestarts"], entry._properties["MainPID"]) == (2, 200)


def test_a_signal_whose_partner_never_comes_counts_after_a_moment(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        systemd.set("vllm.service", NRestarts=2)
        systemd.signal_changed("vllm.service", SERVICE, ["NRestarts"])
        eventually(source, lambda found: found["vllm.service"].nrestarts == 2)


def wait_until(condition: Callable[[], object], seconds: float = 5.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.002)


def test_forged_signals_are_counted_and_ignored(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        session = source._session
        assert session is not None
        assert session.bus is not None
        forger = Peer(bus.address)
        forged = {"NRestarts": Variant("u", 999)}
        to = session.bus.unique_name
        forger.signal(
            unit_path("vllm.service"), PROPERTIES, "PropertiesChanged", "sa{sv}as", SERVICE, forged, [], to=to
        )
        forger.signal(
            "/org/freedesktop/DBus",
            "org.freedesktop.DBus",
            "NameOwnerChanged",
            "sss",
            "org.freedesktop.systemd1",
            "",
            forger.unique_name,
            to=to,
        )
        forger.signal(MANAGER_PATH, MANAGER, "Reloading", "b", True, to=to)
        wait_until(lambda: session.forged_signals == 3)
        systemd.change("vllm.service", NRestarts=2)
        eventually(source, lambda found: found["vllm.service"].nrestarts == 2)
        assert read(source).resyncs == (("bus", 0), ("reload", 0), ("systemd", 0))
        forger.close()


def test_a_snapshot_counts_from_its_place_among_the_signals(bus: PrivateBus) -> None:
    """An older signal that comes first must not win, a newer one right behind must."""
    systemd = FakeSystemd(bus, [VLLM])
    real_result = systemd._result

    def result(call: Any) -> Any:  # noqa: ANN401
        answer = real_result(call)
        if call.member == "GetAll":
            systemd.change("vllm.service", NRestarts=3)  # on its way before the reply, which says 1
        return answer

    systemd._result = result  # type: ignore[method-assign]
    with systemd, source_on(bus) as source:
        assert units(source)["vllm.service"].nrestarts == 1
        systemd.change("vllm.service", NRestarts=4)
        eventually(source, lambda found: found["vllm.service"].nrestarts == 4)


@pytest.mark.parametrize("member", ["GetUnit", "GetAll", "ListUnitsByPatterns", "Subscribe", "Get"])
def test_a_call_that_is_never_answered_is_a_timeout_that_names_it(bus: PrivateBus, member: str) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, call_timeout_seconds=0.1) as source:
        systemd.answers[member] = SILENCE
        error = fault(source)
        assert error.cause is Cause.TIMEOUT
        assert f"no answer to {member}(" in error.detail
        del systemd.answers[member]
        eventually(source, lambda found: "vllm.service" in found)


def test_the_first_read_is_starting_when_its_deadline_comes_first(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        systemd.answers["ListUnitsByPatterns"] = SILENCE
        began = time.monotonic()
        assert fault(source, 0.2).cause is Cause.STARTING
        assert time.monotonic() - began < 1.0


def test_a_later_read_past_its_deadline_is_a_timeout(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        systemd.answers["ListUnitFilesByPatterns"] = SILENCE
        systemd.emit(MANAGER_PATH, MANAGER, "UnitFilesChanged")
        systemd.emit(MANAGER_PATH, MANAGER, "Reloading", "b", True)
        wait_until(lambda: "ListUnitFilesByPatterns" in str(systemd.calls[-1:]))
        assert fault(source, 0.1).cause is Cause.TIMEOUT


def test_a_refused_list_is_a_bus_error_with_systemds_words(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        systemd.answers["ListUnitsByPatterns"] = Error("org.freedesktop.DBus.Error.AccessDenied", "not you")
        error = fault(source)
        assert error.cause is Cause.BUS_ERROR
        assert "AccessDenied: not you" in error.detail


def test_a_unit_that_cannot_be_read_is_absent_and_costs_no_other(bus: PrivateBus) -> None:
    odd = {"Id": "vllm-odd.service", "ActiveState": Variant("u", 5)}
    with FakeSystemd(bus, [VLLM, odd]), source_on(bus) as source:
        assert list(units(source)) == ["vllm.service"]


def test_where_no_unit_can_be_read_that_is_an_error(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        systemd.answers["GetAll"] = Error(text="ENOMEM")
        error = fault(source)
        assert error.cause is Cause.BUS_ERROR
        assert "ENOMEM" in error.detail


def test_an_old_systemd_leaves_fields_absent(bus: PrivateBus) -> None:
    old = {**VLLM, "NRestarts": MISSING, "InvocationID": MISSING, "StartLimitIntervalUSec": MISSING}
    with FakeSystemd(bus, [old]), source_on(bus) as source:
        unit = units(source)["vllm.service"]
        assert unit.nrestarts is None
        assert unit.invocation_id == ""
        assert unit.settings is not None
        assert unit.settings.start_limit_interval_seconds is None
        assert unit.main_pid == 100


def test_no_bus_fails_at_once_and_its_return_is_noticed(bus: PrivateBus) -> None:
    bus.kill()
    with source_on(bus) as source:
        began = time.monotonic()
        assert fault(source).cause is Cause.NO_BUS
        assert time.monotonic() - began < 1.0
        bus.start()
        with FakeSystemd(bus, [VLLM]):
            eventually(source, lambda found: "vllm.service" in found)


def test_an_address_that_is_empty_is_no_bus() -> None:
    source = SystemdSource(patterns=GLOBS, discover=False, is_engine_command=lambda _: False, address="")
    assert fault(source).cause is Cause.NO_BUS
    source.close()


def test_the_address_comes_from_the_environment(bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
    with FakeSystemd(bus, [VLLM]):
        source = SystemdSource(patterns=GLOBS, discover=False, is_engine_command=lambda _: False)
        assert list(units(source)) == ["vllm.service"]
        source.close()


def test_a_bus_without_systemd_says_so_until_it_comes(bus: PrivateBus) -> None:
    with source_on(bus) as source:
        began = time.monotonic()
        assert fault(source).cause is Cause.NO_SYSTEMD
        assert time.monotonic() - began < 1.0
        with FakeSystemd(bus, [VLLM]):
            eventually(source, lambda found: "vllm.service" in found)


def test_a_read_waits_for_another_systemd_and_never_tells_the_state_of_the_old_one(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as old, source_on(bus) as source:
        read(source)
        new = FakeSystemd(bus, [{**VLLM, "NRestarts": 9}], own=False)
        old.leave()
        wait_until(lambda: source._units() is None)
        timer = threading.Timer(0.2, new.enter)
        timer.start()
        report = read(source)
        assert report.units[0].nrestarts == 9
        assert dict(report.resyncs) == {"bus": 0, "reload": 0, "systemd": 1}
        old.change("vllm.service", NRestarts=5)  # it no longer has a say
        new.change("vllm.service", NRestarts=10)
        eventually(source, lambda found: found["vllm.service"].nrestarts == 10)
        new.close()


def test_a_systemd_that_stays_away_is_told_after_a_moment(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        systemd.leave()
        wait_until(lambda: source._units() is None)
        began = time.monotonic()
        assert fault(source, 8.0).cause is Cause.NO_SYSTEMD
        assert 1.0 < time.monotonic() - began < 3.0


def test_a_restarted_bus_is_resynced_and_counted(bus: PrivateBus) -> None:
    with source_on(bus) as source:
        with FakeSystemd(bus, [VLLM]):
            read(source)
        bus.kill()
        wait_until(lambda: source._units() is None)
        assert fault(source).cause is Cause.NO_BUS
        bus.start()
        with FakeSystemd(bus, [{**VLLM, "NRestarts": 4}]):
            eventually(source, lambda found: found["vllm.service"].nrestarts == 4)
            assert dict(read(source).resyncs) == {"bus": 1, "reload": 0, "systemd": 0}


def test_a_bus_that_stopped_answering_is_found_out_without_a_read(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]), source_on(bus, call_timeout_seconds=0.1, ping_seconds=0.1) as source:
        read(source)
        bus.pause()
        wait_until(lambda: source._units() is None)
        assert fault(source).cause is Cause.TIMEOUT
        bus.resume()
        eventually(source, lambda found: "vllm.service" in found)


def test_settings_are_read_again_after_a_reload(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        before = units(source)["vllm.service"].settings
        assert before is not None
        assert before.restart_delay_seconds == 0.1
        systemd.reload([{**VLLM, "RestartUSec": 30_000_000}, {"Id": "vllm-new.service"}])
        found = eventually(source, lambda found: len(found) == 2)
        after = found["vllm.service"].settings
        assert after is not None
        assert after.restart_delay_seconds == 30.0
        assert found["vllm.service"].nrestarts == 1
        assert dict(read(source).resyncs) == {"bus": 0, "reload": 1, "systemd": 0}


def test_an_enabled_unit_is_seen_to_be_enabled(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        assert units(source)["vllm.service"].unit_file_state == ""
        systemd.set("vllm.service", UnitFileState="enabled")
        systemd.emit(MANAGER_PATH, MANAGER, "UnitFilesChanged")
        eventually(source, lambda found: found["vllm.service"].unit_file_state == "enabled")


def test_a_configured_unit_that_does_not_exist_is_reported_and_a_pattern_without_match_is_not(bus: PrivateBus) -> None:
    with FakeSystemd(bus) as systemd, source_on(bus, "gone.service", "bad name", "vllm-*.service") as source:
        found = units(source)
        assert set(found) == {"gone.service", "bad name"}
        for unit in found.values():
            assert (unit.load_state, unit.active_state, unit.sub_state) == ("not-found", "inactive", "dead")
            assert unit.settings is None
        assert "GetUnit(bad name)" not in systemd.calls


def test_unit_files_that_are_not_loaded_are_stubs_and_stay_unloaded(bus: PrivateBus) -> None:
    files = [
        ("/etc/systemd/system/vllm.service", "enabled"),
        ("/etc/systemd/system/vllm-off.service", "masked"),
        ("/etc/systemd/system/vllm@.service", "disabled"),
        ("/etc/systemd/system/other.service", "enabled"),
    ]
    with FakeSystemd(bus, [], files) as systemd, source_on(bus, *GLOBS, "vllm@a\\x2db.service") as source:
        found = units(source)
        assert {name: (unit.load_state, unit.unit_file_state) for name, unit in found.items()} == {
            "vllm.service": ("stub", "enabled"),
            "vllm-off.service": ("masked", "masked"),
            "vllm@a\\x2db.service": ("stub", "disabled"),
        }
        assert systemd.touched == []


def test_units_come_and_go_with_systemds_word(bus: PrivateBus) -> None:
    files = [("/etc/systemd/system/vllm.service", "enabled")]
    with FakeSystemd(bus, [], files) as systemd, source_on(bus) as source:
        assert units(source)["vllm.service"].load_state == "stub"
        systemd.load(VLLM)
        eventually(source, lambda found: found["vllm.service"].active_state == "active")
        systemd.change("vllm.service", NRestarts=2)
        eventually(source, lambda found: found["vllm.service"].nrestarts == 2)
        systemd.unload("vllm.service")
        found = eventually(source, lambda found: found["vllm.service"].load_state == "stub")
        assert found["vllm.service"].nrestarts is None
        assert systemd.touched == []


def test_a_unit_that_flaps_is_looked_at_a_few_times_a_second(bus: PrivateBus) -> None:
    with FakeSystemd(bus) as systemd, source_on(bus, "vllm.service") as source:
        read(source)
        systemd.calls.clear()
        began = time.monotonic()
        for _ in range(300):
            systemd.load(VLLM)
            systemd.unload("vllm.service")
        eventually(source, lambda found: found["vllm.service"].load_state == "not-found")
        looks = systemd.calls.count("GetUnit(vllm.service)")
        assert 1 <= looks <= 2 + (time.monotonic() - began) / 0.25


def test_an_alias_is_reported_as_its_unit(bus: PrivateBus) -> None:
    real = {"Id": "real.service", "Names": ["real.service", "alias.service"]}
    with FakeSystemd(bus, [real]) as systemd, source_on(bus, "alias.service") as source:
        assert list(units(source)) == ["real.service"]
        systemd.change("real.service", NRestarts=7)
        eventually(source, lambda found: found["real.service"].nrestarts == 7)
        systemd.reload()
        eventually(source, lambda found: list(found) == ["real.service"] and dict(read(source).resyncs)["reload"] == 1)


def test_an_alias_that_cannot_be_read_is_resolved_when_its_unit_is_loaded(bus: PrivateBus) -> None:
    files = [("/etc/systemd/system/alias-nobody-has.service", "alias")]
    with FakeSystemd(bus, [], files) as systemd, source_on(bus, "alias-nobody-has.service") as source:
        assert units(source)["alias-nobody-has.service"].load_state == "stub"
        systemd.load({"Id": "real.service", "Names": ["real.service", "alias-nobody-has.service"]})
        eventually(source, lambda found: list(found) == ["real.service"])


def test_a_transient_unit_is_kept_for_an_hour_after_it_was_unloaded(bus: PrivateBus) -> None:
    now = [1000.0]
    transient = {"Id": "vllm-test.service", "Transient": True}
    with FakeSystemd(bus, [transient]) as systemd, source_on(bus, "vllm-*.service", clock=lambda: now[0]) as source:
        assert units(source)["vllm-test.service"].active_state == "active"
        systemd.unload("vllm-test.service")
        found = eventually(source, lambda found: found["vllm-test.service"].load_state == "not-found")
        assert found["vllm-test.service"].active_state == "inactive"
        now[0] += 3599
        assert "vllm-test.service" in units(source)
        now[0] += 2
        assert units(source) == {}
        systemd.load(transient)
        eventually(source, lambda found: "vllm-test.service" in found)


def test_a_transient_unit_that_went_while_the_bus_was_away_is_kept_as_well(bus: PrivateBus) -> None:
    with source_on(bus) as source:
        with FakeSystemd(bus, [{"Id": "vllm-test.service", "Transient": True}]):
            read(source)
        wait_until(lambda: source._units() is None)
        with FakeSystemd(bus):
            found = eventually(source, lambda found: "vllm-test.service" in found)
            assert found["vllm-test.service"].load_state == "not-found"


def test_services_that_run_an_engine_are_discovered(bus: PrivateBus) -> None:
    engine = [["/usr/bin/python3", "-m", "vllm", "serve"]]
    loaded: list[dict[str, Any]] = [
        {"Id": "model.service", "ExecStart": engine},
        {"Id": "web.service", "ExecStart": [["/usr/bin/nginx"]]},
        {"Id": "systemd-vllm.service", "ExecStart": engine},
        {"Id": "model.socket"},
        {"Id": "ghost.service", "LoadState": "not-found"},
    ]
    with FakeSystemd(bus, loaded) as systemd, source_on(bus, "vllm-*.service", discover=True) as source:
        assert list(units(source)) == ["model.service"]
        asked = [call for call in systemd.calls if "ExecStart" in call]
        assert len(asked) == 2
        systemd.load({"Id": "run-r1.service", "ExecStart": engine, "Transient": True})
        eventually(source, lambda found: "run-r1.service" in found)
        before = len(systemd.calls)
        systemd.reload()
        eventually(source, lambda _: dict(read(source).resyncs)["reload"] == 1)
        assert not [call for call in systemd.calls[before:] if "ExecStart" in call]  # known by now
        source.configure(patterns=(), discover=False)
        assert units(source) == {}


def test_units_that_hold_gpu_memory_are_watched_from_the_next_read_on(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM, {"Id": "other.service"}]), source_on(bus) as source:
        source.watch(["other.service"])
        assert list(units(source)) == ["other.service", "vllm.service"]
        source.watch(["vllm.service", "gone.service", "not a name", "x.socket", ""])
        assert list(units(source)) == ["other.service", "vllm.service"]


def test_what_is_watched_can_be_changed_while_it_runs(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM, {"Id": "sglang.service"}]), source_on(bus) as source:
        assert list(units(source)) == ["vllm.service"]
        source.configure(patterns=("sglang.service", "none.service"), discover=False)
        assert list(units(source)) == ["none.service", "sglang.service"]


def test_above_the_buss_limit_of_match_rules_one_rule_takes_over(bus: PrivateBus) -> None:
    many = [{"Id": f"vllm-{number}.service"} for number in range(520)]
    with FakeSystemd(bus, many) as systemd, source_on(bus, "vllm-*.service") as source:
        assert len(units(source, 20)) == 520
        systemd.change("vllm-519.service", NRestarts=2)
        eventually(source, lambda found: found["vllm-519.service"].nrestarts == 2)


def test_closing_is_quick_also_while_a_read_is_stuck(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        systemd.answers["ListUnitsByPatterns"] = SILENCE
        errors: list[SourceError] = []
        reader = threading.Thread(target=lambda: errors.append(fault(source)))
        reader.start()
        wait_until(lambda: any("ListUnits" in call for call in systemd.calls))
        began = time.monotonic()
        source.close()
        reader.join(5)
        assert time.monotonic() - began < 1.0
        assert errors[0].detail == "closed"
        assert fault(source).detail == "closed"


def test_a_source_that_was_never_read_can_be_closed() -> None:
    source = SystemdSource(patterns=GLOBS, discover=True, is_engine_command=lambda _: False)
    source.watch(["a.service"])
    source.configure(patterns=(), discover=False)
    assert source.doing() == "connecting to the system bus"
    source.close()
