"""The source when the bus or systemd fail: what a read says, when, and what happens after."""

import threading
import time

import pytest
from dbus_next.signature import Variant
from tests.fakes.bus import MANAGER, MANAGER_PATH, SILENCE, Error, FakeSystemd, PrivateBus
from tests.fakes.unit_source import GLOBS, VLLM, bus, eventually, fault, read, source_on, units, wait_until

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.systemd.source import SystemdSource

assert bus is not None  # a fixture


@pytest.mark.parametrize("member", ["GetUnit", "GetAll", "ListUnitsByPatterns", "Subscribe", "Get"])
def test_a_call_that_is_never_answered_is_a_timeout_that_names_it(bus: PrivateBus, member: str) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, call_timeout_seconds=0.5) as source:
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
        assert time.monotonic() - began < 4, "and not the 5 s of a call"


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


def test_a_unit_that_could_not_be_read_is_tried_again(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, "vllm-*.service", "vllm.service") as source:
        systemd.answers["GetAll"] = Error(text="ENOMEM")
        error = fault(source)
        assert error.cause is Cause.BUS_ERROR
        assert "ENOMEM" in error.detail
        del systemd.answers["GetAll"]
        assert units(source)["vllm.service"].nrestarts == 1


def test_no_bus_fails_at_once_and_its_return_is_noticed(bus: PrivateBus) -> None:
    bus.kill()
    with source_on(bus) as source:
        began = time.monotonic()
        assert fault(source, 20).cause is Cause.NO_BUS
        assert time.monotonic() - began < 5
        bus.start()
        with FakeSystemd(bus, [VLLM]):
            eventually(source, lambda found: "vllm.service" in found)


def test_the_address_comes_from_the_environment(bus: PrivateBus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DBUS_SYSTEM_BUS_ADDRESS", bus.address)
    with FakeSystemd(bus, [VLLM]):
        source = SystemdSource(patterns=GLOBS, discover=False, is_engine_command=lambda _: False)
        assert list(units(source)) == ["vllm.service"]
        source.close()


def test_a_bus_without_systemd_says_so_until_it_comes(bus: PrivateBus) -> None:
    with source_on(bus) as source:
        began = time.monotonic()
        assert fault(source, 20).cause is Cause.NO_SYSTEMD
        assert time.monotonic() - began < 5
        with FakeSystemd(bus, [VLLM]):
            eventually(source, lambda found: "vllm.service" in found)


def test_a_read_waits_for_another_systemd_and_never_gives_the_state_of_the_old_one(bus: PrivateBus) -> None:
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


def test_a_systemd_that_stays_away_is_reported_after_a_moment(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        systemd.leave()
        wait_until(lambda: source._units() is None)
        began = time.monotonic()
        assert fault(source, 20).cause is Cause.NO_SYSTEMD
        assert 1.0 < time.monotonic() - began < 10


def test_a_bus_that_stopped_answering_is_found_out_without_a_read(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]), source_on(bus, call_timeout_seconds=0.5, ping_seconds=0.1) as source:
        read(source)
        bus.pause()
        wait_until(lambda: source._units() is None)
        assert fault(source).cause is Cause.TIMEOUT
        bus.resume()
        eventually(source, lambda found: "vllm.service" in found)


def test_closing_is_quick_also_while_a_read_is_stuck(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, call_timeout_seconds=20.0) as source:
        systemd.answers["ListUnitsByPatterns"] = SILENCE
        errors: list[SourceError] = []
        reader = threading.Thread(target=lambda: errors.append(fault(source, 20)))
        reader.start()
        wait_until(lambda: any("ListUnits" in call for call in systemd.calls))
        began = time.monotonic()
        source.close()
        reader.join(10)
        assert time.monotonic() - began < 5
        assert errors[0].detail == "closed"
        assert fault(source).detail == "closed"


def test_a_source_that_was_never_read_can_be_closed() -> None:
    source = SystemdSource(patterns=GLOBS, discover=True, is_engine_command=lambda _: False)
    source.watch(["a.service"])
    source.configure(patterns=(), discover=False)
    assert source.doing() == "connecting to the system bus"
    source.close()


def test_a_restarted_bus_is_given_a_moment_until_systemd_is_back_on_it(bus: PrivateBus) -> None:
    with source_on(bus) as source:
        with FakeSystemd(bus, [VLLM]):
            read(source)
        wait_until(lambda: source._units() is None)
        bus.kill()
        bus.start()
        systemd = FakeSystemd(bus, [{**VLLM, "NRestarts": 4}], own=False)
        timer = threading.Timer(0.2, systemd.enter)
        timer.start()
        found = eventually(source, lambda found: found["vllm.service"].nrestarts == 4)
        assert len(found) == 1
        systemd.close()


def test_what_a_read_reports_is_not_logged_as_well(bus: PrivateBus, caplog: pytest.LogCaptureFixture) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        systemd.answers["GetAll"] = Error(text="ENOMEM")
        systemd.emit(MANAGER_PATH, MANAGER, "UnitFilesChanged")
        wait_until(lambda: source._units()._by_name["vllm.service"].unreadable)  # type: ignore[union-attr]
        assert fault(source).cause is Cause.BUS_ERROR
        bus.kill()
        error = fault(source)
        assert error.cause is Cause.NO_BUS
        assert error.detail.startswith(f"{bus.address}: ")
    assert caplog.messages == []


def test_a_read_right_after_the_bus_died_fails_with_that(bus: PrivateBus) -> None:
    with source_on(bus) as source:
        for _ in range(5):
            with FakeSystemd(bus, [VLLM]):
                eventually(source, lambda found: "vllm.service" in found)
                bus.kill()
                assert fault(source).cause is Cause.NO_BUS
                bus.start()


def test_a_unit_that_cannot_be_read_is_said_when_others_are_reported(
    bus: PrivateBus, caplog: pytest.LogCaptureFixture
) -> None:
    odd = {"Id": "vllm-odd.service", "ActiveState": Variant("u", 5)}
    with FakeSystemd(bus, [VLLM, odd]), source_on(bus) as source:
        for _ in range(3):
            assert list(units(source)) == ["vllm.service"]
    assert caplog.messages == ["vllm-odd.service has no readable ActiveState"]
