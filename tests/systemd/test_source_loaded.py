"""Units that any user may have systemd load, and the number of them that the source takes."""

from collections.abc import Iterable

import pytest
from tests.fakes.bus import FakeSystemd, PrivateBus
from tests.fakes.unit_source import (
    GLOBS,
    VLLM,
    bus,
    connection_of,
    eventually,
    read,
    source_on,
    units,
    wait_until,
    watched_by,
)

from llmhost.sources.systemd.units import units as units_module

assert bus is not None  # a fixture


def load_and_unload(systemd: FakeSystemd, names: Iterable[str]) -> None:
    """Do what LoadUnit of a unit that does not exist brings about."""
    for name in names:
        systemd.load({"Id": name, "LoadState": "not-found", "ActiveState": "inactive"})
        systemd.unload(name)


def test_discovery_remembers_only_what_is_loaded(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, discover=True) as source:
        read(source)
        for number in range(20):
            systemd.load({"Id": f"idle{number}.service", "ExecStart": [["nginx"]]})
        discovery = watched_by(source)._discovery
        wait_until(lambda: len(discovery._checked) == 20)
        for number in range(20):
            systemd.unload(f"idle{number}.service")
        load_and_unload(systemd, (f"x{number}.service" for number in range(2000)))
        systemd.load({"Id": "last.service", "ExecStart": [["vllm"]]})
        eventually(source, lambda found: "last.service" in found)
        wait_until(lambda: not discovery._later)
        assert len(discovery._checked) <= 5  # the last, and what was being looked at when it went
        systemd.load({"Id": "idle1.service", "ExecStart": [["vllm"]]})
        eventually(source, lambda found: "idle1.service" in found)


def test_names_of_units_that_do_not_exist_are_let_go_without_a_read(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus, *GLOBS, "gone.service") as source:
        assert set(units(source)) == {"gone.service", "vllm.service"}
        load_and_unload(systemd, (f"vllm-{number}.service" for number in range(300)))
        systemd.load({"Id": "vllm-last.service"})
        wait_until(lambda: set(watched_by(source)._by_name) == {"gone.service", "vllm.service", "vllm-last.service"})


def test_above_the_buss_limit_of_match_rules_a_wide_one_takes_over_until_units_are_few(
    bus: PrivateBus,
) -> None:
    names = [f"vllm-{number}.service" for number in range(520)]
    with FakeSystemd(bus, [VLLM, {"Id": "other.service"}]) as systemd, source_on(bus) as source:
        read(source)
        watched = watched_by(source)
        for name in names:
            systemd.load({"Id": name})
        wait_until(lambda: watched._rules._all_units)
        systemd.change(names[-1], NRestarts=2)
        eventually(source, lambda found: names[-1] in found and found[names[-1]].nrestarts == 2)
        for name in names:
            systemd.unload(name)
        wait_until(lambda: set(watched._by_name) == {"vllm.service"})
        wait_until(lambda: not watched._rules._all_units and not watched._rules._narrowing)
        connection = connection_of(source)
        before = read(source), connection.received
        systemd.change("other.service", NRestarts=1)  # of which the bus tells nobody any more
        assert (read(source), connection.received) == before
        systemd.change("vllm.service", NRestarts=2)
        eventually(source, lambda found: found["vllm.service"].nrestarts == 2)


def test_an_instance_is_let_go_when_it_never_ran_and_stays_when_it_did(bus: PrivateBus) -> None:
    files = [("/etc/systemd/system/vllm@.service", "static"), ("/etc/systemd/system/vllm@own.service", "static")]
    with FakeSystemd(bus, [], files) as systemd, source_on(bus, "vllm@*.service", "vllm@named.service") as source:
        for name in ("ran", "idle", "own", "named"):
            invocation_id = "0123456789abcdef0123456789abcdef" if name == "ran" else ""
            systemd.load({"Id": f"vllm@{name}.service", "ActiveState": "inactive", "InvocationID": invocation_id})
        eventually(source, lambda found: {unit.load_state for unit in found.values()} == {"loaded"} and len(found) == 4)
        for name in ("ran", "idle", "own", "named"):
            systemd.unload(f"vllm@{name}.service")
        found = eventually(source, lambda found: {unit.load_state for unit in found.values()} == {"stub"})
        assert set(found) == {"vllm@ran.service", "vllm@own.service", "vllm@named.service"}


def test_above_a_number_of_units_the_others_are_left_out_until_there_is_room(
    bus: PrivateBus, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(units_module, "MAX_UNITS", 10)
    with FakeSystemd(bus, [{"Id": f"vllm-{number:02}.service"} for number in range(15)]) as systemd:
        with source_on(bus, "vllm-*.service", "vllm-14.service", "zero.service") as source:
            first = units(source)
            assert len(first) == 10
            assert {"vllm-14.service", "zero.service"} <= set(first)
            systemd.load({"Id": "vllm-late.service"})
            source.configure(patterns=("vllm-*.service", "vllm-13.service"), discover=False)
            found = units(source)
            assert "vllm-13.service" in found
            assert len(found) == 10
            for number in range(15):
                systemd.unload(f"vllm-{number:02}.service")
            eventually(source, lambda found: set(found) == {"vllm-late.service", "vllm-13.service"})
        assert caplog.messages == ["more than 10 units match what is to be watched; the others are left out"]


def test_an_undecodable_reply_does_not_make_it_read_again_and_again(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)
        calls = len(systemd.calls)
        connection = connection_of(source)
        settle = connection._settle
        broken = 0

        def break_properties(message: object) -> None:
            nonlocal broken
            if message.signature == "a{sv}":  # type: ignore[attr-defined]
                broken += 1
                object.__setattr__(message, "signature", "a{s")
            settle(message)  # type: ignore[arg-type]

        connection._settle = break_properties  # type: ignore[method-assign]
        assert source._loop is not None
        source._loop.call_soon_threadsafe(watched_by(source).resync)
        wait_until(lambda: broken == 1)
        wait_until(lambda: watched_by(source)._syncs.served == 2)
        assert watched_by(source)._syncs.made == 2
        assert sum(call.startswith("GetAll") for call in systemd.calls[calls:]) == 1
