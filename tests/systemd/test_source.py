"""The source against a fake systemd on a real bus of its own: the result and the cost of a read."""

from typing import Any

import pytest
from dbus_next.signature import Variant
from tests.fakes.bus import (
    MANAGER,
    MANAGER_PATH,
    PROPERTIES,
    SERVICE,
    FakeSystemd,
    PrivateBus,
)
from tests.fakes.bus_peer import Peer
from tests.fakes.unit_properties import unit_path
from tests.fakes.unit_source import VLLM, bus, connection_of, eventually, read, session_of, source_on, units, wait_until

assert bus is not None  # a fixture


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
    group = "/system.slice/vllm-dead.service"  # where processes are left over
    dead = {"Id": "vllm-dead.service", "ActiveState": "failed", "ControlGroup": group}
    with FakeSystemd(bus, [VLLM, dead]) as systemd, source_on(bus) as source:
        systemd.change("vllm.service", ActiveState="deactivating")
        first = read(source)
        before = connection_of(source).sent
        assert [read(source) for _ in range(10)] == [first] * 10
        assert connection_of(source).sent == before


def test_signals_alone_bring_changes(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        systemd.calls.clear()
        systemd.change("vllm.service", StatusText="loading", NRestarts=2, StateChangeTimestamp=7_000_000)
        systemd.change("vllm.service", ActiveState="failed", SubState="failed", MainPID=0)
        found = eventually(source, lambda found: found["vllm.service"].nrestarts == 2)
        assert found["vllm.service"].state_change_at == 7.0
        assert systemd.calls == []


def test_unwatched_units_cost_no_message(bus: PrivateBus) -> None:
    ignored = [{"Id": f"other{number}.service"} for number in range(500)]
    with FakeSystemd(bus, [VLLM, *ignored]) as systemd, source_on(bus) as source:
        read(source)
        connection = connection_of(source)
        sent, received = connection.sent, connection.received
        for number in range(500):
            systemd.change(f"other{number}.service", NRestarts=1)
        systemd.change("vllm.service", NRestarts=2)
        eventually(source, lambda found: found["vllm.service"].nrestarts == 2)
        assert connection.sent == sent
        assert connection.received == received + 2  # the pair for the one that is watched


def test_forged_signals_are_counted_and_ignored_and_said_once(
    bus: PrivateBus, caplog: pytest.LogCaptureFixture
) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        session = session_of(source)
        forger = Peer(bus.address)
        forged = {"NRestarts": Variant("u", 999)}
        to = connection_of(source).unique_name
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
        assert caplog.messages == [
            f"ignored a signal PropertiesChanged that came from {forger.unique_name}, which is not systemd"
        ]
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
