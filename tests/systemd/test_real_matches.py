"""The units that the source takes from a real systemd: matches of globs, and units that any user has it load."""

import contextlib

import pytest
from dbus_next.message import Message
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.bus_peer import Peer
from tests.fakes.unit_source import eventually, source_at, units, watched_by

from llmhost.sources.systemd.source import SystemdSource

assert booted_systemd is not None  # a fixture

MANAGER = "org.freedesktop.systemd1.Manager"
SLEEPER = "[Service]\nExecStart=/bin/sleep 1000\n"
INSTANCE = "model@Qwen-Qwen3\\x2d8B.service"
ODD = "odd\\x2dname.service"


@pytest.fixture(name="host", scope="module")
def fixture_host(booted_systemd: Booted) -> Booted:
    for name in ("model@.service", "late-engine.service", ODD):
        booted_systemd.write_unit(name, SLEEPER)
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", INSTANCE, "late-engine.service")
    return booted_systemd


def source_on(host: Booted, *patterns: str, discover: bool = False) -> contextlib.AbstractContextManager[SystemdSource]:
    return source_at(
        host.bus_address,
        *patterns,
        discover=discover,
        is_engine_command=lambda argv: argv == ("/bin/sleep", "1002"),
        root=host.root,
    )


@pytest.mark.parametrize(
    ("glob", "names"),
    [
        ("model@Qwen*\\x2d*.service", [INSTANCE]),
        ("model@*[\\]x2d8B.service", [INSTANCE]),
        ("odd\\x2d*.service", [ODD]),
        ("odd[!x]x2d*.service", [ODD]),
        ("odd[^\\]x2d*.service", [ODD]),  # `^` is one of the set, as in Python
        ("odd[^x]x2d*.service", []),
    ],
)
def test_a_glob_means_the_same_to_systemd(host: Booted, glob: str, names: list[str]) -> None:
    with source_on(host, glob) as source:
        assert list(units(source)) == names


def test_a_service_that_becomes_an_engine_with_a_reload_is_discovered(host: Booted) -> None:
    with source_on(host, "model-*.service", discover=True) as source:
        assert "late-engine.service" not in units(source)
        host.write_unit("late-engine.service", "[Service]\nExecStart=/bin/sleep 1002\n")
        host.systemctl("daemon-reload")
        eventually(source, lambda found: "late-engine.service" in found)


def test_what_anybody_has_systemd_load_is_let_go(host: Booted) -> None:
    with source_on(host, "model*.service", discover=True) as source:
        before = units(source)
        watched = watched_by(source)
        peer = Peer(host.bus_address)
        for number in range(300):
            for name in (f"model-{number}.service", f"model@{number}.service", f"x{number}.service"):
                load = Message(
                    *("org.freedesktop.systemd1", "/org/freedesktop/systemd1", MANAGER, "LoadUnit"),
                    signature="s",
                    body=[name],
                )
                replies = peer.send(load)
                while (answer := peer.receive()) is not None and answer.reply_serial != replies:
                    pass
                assert answer is not None
                assert answer.signature == "o"
        peer.close()
        host.run(["systemd-run", "--unit=model-last", "/bin/sleep", "1000"])
        eventually(source, lambda found: set(found) == {*before, "model-last.service"})
        eventually(source, lambda _: len(watched._by_name) == len(before) + 1 and not watched._rules._all_units)
        eventually(source, lambda _: not [name for name in watched._discovery._checked if name.startswith("x")])
        host.systemctl("stop", "model-last.service")
