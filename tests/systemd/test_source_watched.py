"""The units that the source watches, and its reports of those that are not loaded."""

import asyncio
import select
import time
from typing import Any

import pytest
from tests.fakes.bus import (
    FakeSystemd,
    PrivateBus,
)
from tests.fakes.unit_properties import unit_path
from tests.fakes.unit_source import (
    GLOBS,
    VLLM,
    bus,
    bus_socket,
    eventually,
    read,
    source_on,
    units,
    wait_until,
    watched_by,
)

from llmhost.sources.systemd.units import discovery

assert bus is not None  # a fixture
ENVIRONMENT = "Get(org.freedesktop.systemd1.Manager, Environment)"  # asked for before each look at what is related


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


def test_a_unit_that_flaps_is_read_a_few_times_a_second(bus: PrivateBus) -> None:
    with FakeSystemd(bus) as systemd, source_on(bus, "vllm.service") as source:
        read(source)
        systemd.calls.clear()
        began = time.monotonic()
        for _ in range(300):
            systemd.load(VLLM)
            systemd.unload("vllm.service")
        eventually(source, lambda found: found["vllm.service"].load_state == "not-found")
        reads = systemd.calls.count("GetUnit(vllm.service)")
        assert 1 <= reads <= 2 + (time.monotonic() - began) / 0.25


def test_an_alias_is_reported_as_its_unit(bus: PrivateBus) -> None:
    real = {"Id": "real.service", "Names": ["real.service", "alias.service"]}
    with FakeSystemd(bus, [real]) as systemd, source_on(bus, "alias.service") as source:
        assert units(source)["real.service"].names == ("real.service", "alias.service")
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


def test_a_unit_that_is_loaded_again_while_it_is_forgotten_is_watched_again(bus: PrivateBus) -> None:
    now = [1000.0]
    transient = {"Id": "vllm-test.service", "Transient": True}
    with FakeSystemd(bus, [transient]) as systemd, source_on(bus, "vllm-*.service", clock=lambda: now[0]) as source:
        assert "vllm-test.service" in units(source)
        systemd.unload("vllm-test.service")
        eventually(source, lambda found: found["vllm-test.service"].load_state == "not-found")
        now[0] += 3601

        async def read_as_it_is_loaded() -> None:
            """Have the signal taken in between the last look of a read for news and its report."""
            systemd.load(transient)
            assert select.select([bus_socket(source)], [], [], 10)[0]
            await asyncio.sleep(0)  # now the loop takes bytes from the socket; in its next round, both tasks go on
            await asyncio.ensure_future(source._read(time.monotonic() + 10))

        assert source._loop is not None
        asyncio.run_coroutine_threadsafe(read_as_it_is_loaded(), source._loop).result(20)
        assert units(source)["vllm-test.service"].active_state == "active"


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
        {"Id": "dbus.service", "ExecStart": [["/usr/bin/dbus-daemon"]]},
        {"Id": "llmhost.service", "ExecStart": [["/opt/llmhost/bin/llmhost", "serve"]]},
        {"Id": "model.socket"},
        {"Id": "ghost.service", "LoadState": "not-found"},
    ]
    with FakeSystemd(bus, loaded) as systemd, source_on(bus, "vllm-*.service", discover=True) as source:
        assert list(units(source)) == ["model.service"]
        calls = [call for call in systemd.calls if "ExecStart" in call]
        assert len(calls) == 2
        systemd.load({"Id": "run-r1.service", "ExecStart": engine, "Transient": True})
        eventually(source, lambda found: "run-r1.service" in found)
        source.configure(patterns=(), discover=False)
        assert units(source) == {}
        source.configure(patterns=(), discover=True)
        assert list(units(source)) == ["model.service", "run-r1.service"]


def test_a_service_whose_name_begins_as_one_of_the_systems_is_discovered(bus: PrivateBus) -> None:
    names = ["dbus-qwen.service", "dbusllm.service", "llmhost-guarded-llama.service", "llmhosting-qwen.service"]
    loaded = [{"Id": name, "ExecStart": [["vllm", "serve"]]} for name in names]
    with FakeSystemd(bus, loaded), source_on(bus, "x-*.service", discover=True) as source:
        assert list(units(source)) == names


def test_units_that_hold_gpu_memory_are_watched_from_the_next_read_on(bus: PrivateBus) -> None:
    with FakeSystemd(bus, [VLLM, {"Id": "other.service"}]), source_on(bus, discover=True) as source:
        source.watch(["other.service"])
        assert list(units(source)) == ["other.service", "vllm.service"]
        source.watch(["vllm.service", "gone.service", "not a name", "x.socket", ""])
        assert list(units(source)) == ["other.service", "vllm.service"]


def test_without_discovery_nothing_is_watched_but_what_is_configured(bus: PrivateBus) -> None:
    unwatched: list[dict[str, Any]] = [{"Id": "engine.service", "ExecStart": [["vllm"]]}, {"Id": "holder.service"}]
    with FakeSystemd(bus, [VLLM, *unwatched]), source_on(bus, discover=True) as source:
        source.watch(["holder.service"])
        assert list(units(source)) == ["engine.service", "holder.service", "vllm.service"]
        source.configure(patterns=GLOBS, discover=False)
        assert list(units(source)) == ["vllm.service"]
        source.watch(["holder.service"])
        assert list(units(source)) == ["vllm.service"]
        source.configure(patterns=GLOBS, discover=True)
        assert list(units(source)) == ["engine.service", "vllm.service"]


def test_after_a_reload_services_are_checked_again_in_their_turn(
    bus: PrivateBus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovery, "_PAUSE_SECONDS", 0.05)
    before = [{"Id": f"web{number}.service", "ExecStart": [["nginx"]]} for number in range(40)]
    after = [*before[:39], {"Id": "web39.service", "ExecStart": [["vllm"]]}]
    with FakeSystemd(bus, before) as systemd, source_on(bus, "vllm-*.service", discover=True) as source:
        assert units(source) == {}
        count = len(systemd.calls)
        began = time.monotonic()
        systemd.reload(after)
        eventually(source, lambda found: list(found) == ["web39.service"])
        wait_until(lambda: sum("ExecStart" in call for call in systemd.calls[count:]) == 40)
        assert time.monotonic() - began > 0.4  # by four workers, each with nine pauses between ten


def test_a_service_that_comes_with_a_reload_is_checked_within_the_next_read(bus: PrivateBus) -> None:
    web = {"Id": "web.service", "ExecStart": [["nginx"]]}
    with FakeSystemd(bus, [web]) as systemd, source_on(bus, "vllm-*.service", discover=True) as source:
        assert units(source) == {}
        systemd.reload([web, {"Id": "new.service", "ExecStart": [["vllm"]]}])
        wait_until(lambda: dict(source._resyncs)["reload"] == 1)
        assert list(units(source)) == ["new.service"]


def test_what_a_unit_is_related_to_is_read_again_once_systemd_has_loaded_another(bus: PrivateBus) -> None:
    holder = {"Id": "holder.target", "SubState": "active"}
    with FakeSystemd(bus, [VLLM]) as systemd, source_on(bus) as source:
        read(source)

        def looks(signal: int) -> int:
            """Count the looks at the unit once it has signalled, and that has been served."""
            for _ in range(2):  # the next look begins once the one before has ended
                before = systemd.calls.count(ENVIRONMENT)
                systemd.change("vllm.service", NRestarts=signal)
                wait_until(lambda before=before: systemd.calls.count(ENVIRONMENT) > before)  # type: ignore[misc]
            return systemd.calls.count("GetUnit(vllm.service)")

        once = looks(2)
        assert [looks(signal) for signal in range(3, 6)] == [once] * 3
        systemd.set("vllm.service", UpheldBy=["holder.target"])
        systemd.load(holder)
        assert looks(6) > once
        found = eventually(source, lambda found: bool(found["vllm.service"].relatives))
        assert [(other.name, other.active_state) for other in found["vllm.service"].relatives] == [
            ("holder.target", "active")
        ]
        systemd.unload("vllm.service")
        wait_until(lambda: not watched_by(source)._surroundings.relatives.follows(unit_path("holder.target")))
