"""Other units of a real systemd that start a service, stop it or want it to run, and what follows from that."""

import time
from collections.abc import Callable, Iterator

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.watched_units import Watched

from llmhost.derive.should_run import should_run
from llmhost.model.history.unit_history import Trigger
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok, Reading

assert booted_systemd is not None  # a fixture

LIVES = "[Service]\nExecStart=/bin/sleep 1000\n"
DIES = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep 0.3\n"
FAILS = "[Unit]\nStartLimitIntervalSec=0\n{unit}[Service]\nExecStart=/bin/sh -c 'sleep 0.3; exit 1'\n"
AGAIN = "Restart=on-failure\nRestartSec=0.2\n"
UNITS = {
    # loops that are no Restart= of the service itself
    "r-upheld.service": DIES,
    "r-holder.target": "[Unit]\nUpholds=r-upheld.service\n",
    "r-timed.service": FAILS.format(unit=""),
    "r-timed.timer": "[Timer]\nOnUnitInactiveSec=100ms\nAccuracySec=1ms\n",
    "r-path.service": DIES,
    "r-path.path": "[Unit]\nStartLimitIntervalSec=0\n[Path]\nPathExists=/run/r-go\nTriggerLimitIntervalSec=0\n",
    "r-lives.path": "[Path]\nPathExists=/run/r-go\n",
    "r-lives.service": LIVES,
    "r-chain.service": FAILS.format(unit="OnFailure=r-mender.service\n"),
    "r-mender.service": "[Unit]\nStartLimitIntervalSec=0\nOnSuccess=r-chain.service\n"
    "[Service]\nType=oneshot\nExecStart=/bin/true\n",
    "r-pulled.service": DIES,
    "r-app.service": "[Unit]\nStartLimitIntervalSec=0\nWants=r-pulled.service\nAfter=r-pulled.service\n"
    f"[Service]\nExecStart=/bin/sh -c 'sleep 0.6; exit 1'\n{AGAIN}",
    "r-part.service": f"[Unit]\nStartLimitIntervalSec=0\nPartOf=r-whole.service\nAfter=r-whole.service\n{LIVES}",
    "r-whole.service": FAILS.format(unit="Wants=r-part.service\n") + AGAIN,
    "r-socket.service": FAILS.format(unit=""),
    "r-socket.socket": "[Socket]\nListenStream=/run/r-socket\nTriggerLimitIntervalSec=0\n",
    # ends
    "r-fabric.service": LIVES,
    "r-bound.service": f"[Unit]\nBindsTo=r-fabric.service\nAfter=r-fabric.service\n{LIVES}",
    "r-loose.service": f"[Unit]\nBindsTo=r-fabric.service\n{LIVES}",  # in no order
    "r-between.service": f"[Unit]\nBindsTo=r-fabric.service\nAfter=r-fabric.service\n{LIVES}",
    "r-farther.service": f"[Unit]\nRequires=r-between.service\nAfter=r-between.service\n{LIVES}",
    # wanted
    "r-wants.target": "[Unit]\nWants=r-static.service r-skipped.service r-execskipped.service r-asserted.service\n",
    "r-static.service": "[Service]\nExecStart=/bin/sh -c 'until test -e /run/r-go; do sleep 0.05; done'\n",
    "r-alone.service": "[Service]\nExecStart=/bin/sh -c 'until test -e /run/r-go; do sleep 0.05; done'\n",
    "r-skipped.service": f"[Unit]\nConditionPathExists=/nonexistent\n{LIVES}",
    "r-execskipped.service": f"{LIVES}ExecCondition=/bin/false\n",
    "r-asserted.service": f"[Unit]\nAssertPathExists=/nonexistent\n{LIVES}",
    "r-again.service": f"[Unit]\nConditionPathExists=!/run/r-go\n{LIVES}",
}


@pytest.fixture(name="host", scope="module")
def fixture_host(booted_systemd: Booted) -> Booted:
    for name, text in UNITS.items():
        booted_systemd.write_unit(name, text)
    booted_systemd.systemctl("daemon-reload")
    return booted_systemd


@pytest.fixture(name="watched")
def fixture_watched(host: Booted) -> Iterator[Watched]:
    with Watched(host, "r-*.service") as watched:
        yield watched
    host.run(["sh", "-c", "systemctl stop r-\\*; systemctl reset-failed; rm -f /run/r-go"], check=False)


def wanted(watched: Watched, name: str) -> Reading[bool]:
    units = {unit.id.name: unit for unit in watched.source.read(time.monotonic() + 30).units}
    return should_run(units[name], watched.history.units.get(UnitId(name)))


def eventually(condition: Callable[[], bool]) -> None:
    """Wait for what a reading tells: within `until`, no event could come in meanwhile."""
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.02)


def knows(watched: Watched, name: str, relative: str) -> None:
    """Wait until the source follows the relative of a unit."""

    def known() -> bool:
        units = {unit.id.name: unit for unit in watched.source.read(time.monotonic() + 30).units}
        return relative in {other.name for other in units[name].relatives if other.active_state}

    eventually(known)


def up(watched: Watched, name: str) -> None:
    def is_up() -> bool:
        latest = watched.record(name).latest if name in watched.names() else None
        return latest is not None and latest.main_monotonic is not None and latest.end is None

    watched.until(is_up)


def ended(watched: Watched, name: str) -> None:
    watched.until(lambda: (latest := watched.record(name).latest) is not None and latest.end is not None)


@pytest.mark.parametrize(
    ("service", "begin", "manual"),
    [
        ("r-upheld", "systemctl start r-holder.target", 1),
        ("r-timed", "systemctl start r-timed.service", 1),
        ("r-path", "touch /run/r-go", 0),
        ("r-chain", "systemctl start r-chain.service", 1),
        ("r-pulled", "systemctl start r-app.service", 1),
        ("r-part", "systemctl start r-whole.service", 1),
    ],
)
def test_a_loop_that_another_unit_makes_is_told_from_starts_by_hand(
    host: Booted, watched: Watched, service: str, begin: str, manual: int
) -> None:
    host.systemctl("start", "r-timed.timer", "r-path.path")
    knows(watched, "r-timed.service", "r-timed.timer")
    knows(watched, "r-path.service", "r-path.path")
    host.run(begin.split())
    name = f"{service}.service"
    watched.until(lambda: name in watched.names() and watched.triggers(name).total() >= 4)
    triggers = watched.triggers(name)
    assert (triggers[Trigger.MANUAL], triggers[Trigger.AUTO]) == (manual, 0)
    assert triggers[Trigger.UNIT] >= 3


def test_a_connection_to_a_socket_and_a_start_by_hand_are_told_apart(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "r-socket.socket")
    knows(watched, "r-socket.service", "r-socket.socket")
    host.systemctl("start", "r-socket.service")
    ended(watched, "r-socket.service")
    assert watched.triggers("r-socket.service") == {Trigger.MANUAL: 1}
    host.run(["python3", "-c", "import socket; socket.socket(socket.AF_UNIX).connect('/run/r-socket')"])
    watched.until(lambda: watched.triggers("r-socket.service")[Trigger.UNIT] > 0)
    assert watched.triggers("r-socket.service")[Trigger.MANUAL] == 1


def test_a_restart_by_hand_of_what_a_path_unit_has_started_is_manual(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "r-lives.path")
    knows(watched, "r-lives.service", "r-lives.path")
    host.run(["touch", "/run/r-go"])
    up(watched, "r-lives.service")
    host.systemctl("restart", "r-lives.service")
    watched.until(lambda: watched.triggers("r-lives.service").total() == 2)
    assert watched.triggers("r-lives.service") == {Trigger.UNIT: 1, Trigger.MANUAL: 1}


@pytest.mark.parametrize("service", ["r-bound.service", "r-loose.service", "r-farther.service"])
@pytest.mark.parametrize("signal", ["KILL", "TERM"])  # it fails; it ends with success
def test_a_service_that_systemd_stops_as_another_died_should_run(
    host: Booted, watched: Watched, service: str, signal: str
) -> None:
    host.systemctl("start", service)
    up(watched, service)
    knows(watched, service, "r-fabric.service")
    host.systemctl("kill", f"--signal={signal}", "r-fabric.service")
    ended(watched, service)
    record = watched.record(service)
    assert record.latest is not None
    assert record.latest.end is not None
    assert (record.latest.end.ended_with, record.latest.end.asked) == ("r-fabric.service", False)
    assert (record.unexpected_stops_total, record.stopped) == (1, False)
    assert wanted(watched, service) == Ok(True)


@pytest.mark.parametrize("service", ["r-bound.service", "r-loose.service", "r-farther.service"])
@pytest.mark.parametrize("stopped", ["itself", "r-fabric.service"])
def test_a_service_that_a_person_stops_or_all_that_it_is_bound_to_is_stopped(
    host: Booted, watched: Watched, service: str, stopped: str
) -> None:
    host.systemctl("start", service)
    up(watched, service)
    knows(watched, service, "r-fabric.service")
    host.systemctl("stop", service if stopped == "itself" else stopped)
    ended(watched, service)
    assert watched.record(service).stopped
    assert wanted(watched, service) == Ok(False)


def test_a_unit_is_wanted_as_long_as_one_that_is_up_wants_it(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "r-wants.target", "r-alone.service")
    for name in ("r-static.service", "r-alone.service"):
        up(watched, name)
    host.run(["touch", "/run/r-go"])
    for name in ("r-static.service", "r-alone.service"):
        ended(watched, name)
    assert wanted(watched, "r-static.service") == Ok(True)  # it ended with exit 0, and nobody stopped it
    assert wanted(watched, "r-alone.service") == Ok(False)
    host.systemctl("stop", "r-wants.target")
    eventually(lambda: wanted(watched, "r-static.service") == Ok(False))


def test_what_systemd_skips_for_a_condition_is_not_wanted(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "r-wants.target", "r-again.service")
    watched.until(lambda: watched.unit("r-skipped.service").condition_met is False)
    assert wanted(watched, "r-skipped.service") == Ok(False)
    ended(watched, "r-execskipped.service")
    assert wanted(watched, "r-execskipped.service") == Ok(False)
    # an assertion that does not hold is a start that failed
    watched.until(lambda: watched.unit("r-asserted.service").condition_met is True)
    assert wanted(watched, "r-asserted.service") == Ok(True)
