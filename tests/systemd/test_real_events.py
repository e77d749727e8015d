"""Actions of a real systemd, and the history that its events make: each written down by hand."""

import time
from collections.abc import Iterator
from itertools import pairwise

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.watched_units import Watched

from llmhost.model.history.unit_history import UnitHistory

assert booted_systemd is not None  # a fixture

GO = "/run/go"
UNITS = {
    "e-pre.service": f"""
        [Unit]
        StartLimitIntervalSec=0
        [Service]
        ExecStartPre=/bin/sh -c 'test -e {GO} && rm {GO}'
        ExecStart=/bin/sleep 1000
        Restart=on-failure
        RestartSec=30ms
        """,
    "e-missing.service": "[Service]\nExecStart=/nonexistent/program\n",
    "e-nobody.service": "[Service]\nUser=no-such-user\nExecStart=/bin/sleep 1000\n",
    "e-forking.service": "[Service]\nType=forking\nExecStart=/bin/sh -c 'sleep 1000 & sleep 0.1'\n",
    "e-notify.service": "[Service]\nType=notify\nTimeoutStartSec=300ms\nExecStart=/bin/sleep 1000\n",
    "e-oneshot.service": "[Service]\nType=oneshot\nExecStart=/bin/sleep 0.1\n",
    "e-condition.service": "[Service]\nExecCondition=/bin/false\nExecStart=/bin/sleep 1000\nRestart=always\n",
    "e-limit.service": """
        [Unit]
        StartLimitIntervalSec=60
        StartLimitBurst=3
        [Service]
        ExecStart=/bin/false
        Restart=on-failure
        RestartSec=10ms
        """,
    "e-waits.service": """
        [Unit]
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/sh -c 'test -e /run/stay || exit 7; exec sleep 1000'
        Restart=on-failure
        RestartSec=1000
        """,
    "e-loops.service": """
        [Unit]
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/sh -c 'test -e /run/loop && exit 7; exec sleep 1000'
        Restart=on-failure
        RestartSec=300ms
        """,
    "e-killed.service": "[Service]\nExecStart=/bin/sleep 1000\nRestart=no\n",
    "e-leaves.service": "[Service]\nExecStart=/bin/sleep 0.2\n",
    # each is started anew as soon as it has ended, by a job that asked for no end
    "e-upheld.service": "[Service]\nExecStart=/bin/sleep 0.2\n",
    "e-upholds.service": "[Unit]\nUpholds=e-upheld.service\n[Service]\nExecStart=/bin/sleep 1000\n",
    "e-lingers.service": f"""
        [Service]
        ExecStart=/bin/sleep 0.2
        ExecStopPost=/bin/sh -c 'until test -e {GO}; do sleep 0.02; done'
        """,
    "e-reloads.service": "[Service]\nExecStart=/bin/sleep 1000\nExecReload=/bin/sh -c 'kill $MAINPID; sleep 0.1'\n",
    "e-reloads-long.service": "[Service]\nExecStart=/bin/sleep 1000\nExecReload=/bin/sleep 1000\n",
    "e-once.service": "[Unit]\nCollectMode=inactive-or-failed\n[Service]\nType=oneshot\nExecStart=/bin/false\n",
    "e-kept.target": "[Unit]\nWants=e-waits.service e-loops.service e-limit.service\n",
    "e@.service": "[Service]\nExecStart=/bin/sh -c 'exit %i'\n",
}
MATCHED = ("e-*.service", "e@3.service", "e-transient.service")


@pytest.fixture(name="host", scope="module")
def fixture_host(booted_systemd: Booted) -> Booted:
    for name, text in UNITS.items():
        booted_systemd.write_unit(name, "\n".join(line.strip() for line in text.splitlines()))
    booted_systemd.systemctl("daemon-reload")
    return booted_systemd


@pytest.fixture(name="watched")
def fixture_watched(host: Booted) -> Iterator[Watched]:
    """Units that have not been started."""
    host.run(["rm", "-f", GO, "/run/stay", "/run/loop"])
    with Watched(host, *MATCHED) as watched:
        yield watched
    host.run(["sh", "-c", "systemctl stop e-\\*.service; systemctl reset-failed"], check=False)


def ends(record: UnitHistory) -> list[tuple[str, int | None, bool | None]]:
    return [(start.end.result, start.end.exec_main_status, start.end.asked) for start in record.starts if start.end]


def ended(watched: Watched, name: str, count: int = 1) -> UnitHistory:
    watched.until(lambda: name in watched.names() and len(ends(watched.record(name))) >= count)
    return watched.record(name)


def up(watched: Watched, name: str, attempts: int = 1) -> UnitHistory:
    def is_up() -> bool:
        if name not in watched.names():
            return False
        starts = watched.record(name).starts
        return len(starts) >= attempts and starts[-1].main_monotonic is not None and starts[-1].end is None

    watched.until(is_up)
    return watched.record(name)


def waits(watched: Watched, name: str) -> None:
    watched.until(lambda: name in watched.names() and watched.record(name).state == "auto_restart")


def test_a_guard_that_fails_makes_attempts_that_are_not_started(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-pre.service", check=False)
    ended(watched, "e-pre.service", 3)
    host.run(["touch", GO])
    record = up(watched, "e-pre.service")
    attempts = len(record.starts)
    assert watched.counts("e-pre.service") == {
        "manual not_started": 1,
        "auto not_started": attempts - 2,
        "auto main": 1,
    }
    assert record.failures_total == {"exit-code": attempts - 1}
    assert [start.attempt for start in record.starts] == list(range(1, attempts + 1))
    last = record.starts[-1]
    assert last.main_monotonic is not None
    assert last.main_monotonic > last.began_monotonic
    # of the next attempt, systemd tells no ExecMainStart of the one before
    host.systemctl("kill", "--signal=KILL", "e-pre.service")
    ended(watched, "e-pre.service", attempts + 1)
    assert watched.counts("e-pre.service")["auto not_started"] == attempts - 1
    pre = [event.unit for event in watched.events if event.unit.sub_state == "start-pre"]
    assert {unit.exec_main_start_monotonic for unit in pre} == {None}


def test_a_program_that_is_missing_is_a_main_process_that_fails(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-missing.service")
    record = ended(watched, "e-missing.service")
    assert watched.counts("e-missing.service") == {"manual main": 1}
    assert ends(record) == [("exit-code", 203, False)]
    assert record.failures_total == {"exit-code": 1}


def test_a_user_that_is_missing_is_a_main_process_that_fails(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-nobody.service")
    record = ended(watched, "e-nobody.service")
    assert watched.counts("e-nobody.service") == {"manual main": 1}
    assert ends(record) == [("exit-code", 217, False)]


def test_a_forking_service_starts_once_and_ends_as_asked(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-forking.service")
    up(watched, "e-forking.service")
    host.systemctl("stop", "e-forking.service")
    record = ended(watched, "e-forking.service")
    assert watched.counts("e-forking.service") == {"manual main": 1}
    assert ends(record) == [("success", 15, True)]
    assert (record.unexpected_stops_total, record.failures_total, record.stopped) == (0, {}, True)


def test_a_service_that_never_says_that_it_is_ready_has_started_and_fails(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-notify.service", check=False)
    record = ended(watched, "e-notify.service")
    assert watched.counts("e-notify.service") == {"manual main": 1}
    assert ends(record) == [("timeout", 15, False)]
    assert record.failures_total == {"timeout": 1}


def test_a_oneshot_ends_with_no_unexpected_stop(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-oneshot.service")
    record = ended(watched, "e-oneshot.service")
    assert watched.counts("e-oneshot.service") == {"manual main": 1}
    assert ends(record) == [("success", 0, False)]
    assert (record.unexpected_stops_total, record.failures_total) == (0, {})


def test_a_condition_that_is_not_met_is_an_attempt_that_is_not_started(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-condition.service")
    record = ended(watched, "e-condition.service")
    assert watched.counts("e-condition.service") == {"manual not_started": 1}
    assert ends(record) == [("exec-condition", None, False)]


def test_the_start_limit_refuses_what_is_then_no_start(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-limit.service")
    ended(watched, "e-limit.service", 3)
    watched.until(lambda: watched.unit("e-limit.service").nrestarts == 3)  # it counts the refused one as well
    watched.until(lambda: watched.record("e-limit.service").state == "failed")
    assert watched.counts("e-limit.service") == {"manual main": 1, "auto main": 2}
    assert watched.record("e-limit.service").failures_total == {"exit-code": 3}
    watched.until(lambda: watched.unit("e-limit.service").job == 0)
    assert not watched.record("e-limit.service").stopped
    host.systemctl("reset-failed", "e-limit.service")
    host.systemctl("start", "e-limit.service")
    ended(watched, "e-limit.service", 6)
    assert watched.counts("e-limit.service") == {"manual main": 2, "auto main": 4}


def test_a_stop_while_it_waits_to_restart_ends_no_run(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-waits.service")
    waits(watched, "e-waits.service")
    host.systemctl("stop", "e-waits.service")
    watched.until(lambda: watched.record("e-waits.service").stopped)
    record = watched.record("e-waits.service")
    assert watched.counts("e-waits.service") == {"manual main": 1}
    assert ends(record) == [("exit-code", 7, False)]
    assert (record.failures_total, record.unexpected_stops_total) == ({"exit-code": 1}, 0)


def test_a_restart_by_hand_while_it_waits_to_restart_is_manual(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-waits.service")
    waits(watched, "e-waits.service")
    host.run(["touch", "/run/stay"])
    host.systemctl("restart", "e-waits.service")
    record = up(watched, "e-waits.service", 2)
    assert watched.counts("e-waits.service") == {"manual main": 2}
    assert ends(record) == [("exit-code", 7, False)]


@pytest.mark.parametrize("restarts", [0, 1])
def test_a_restart_after_reset_failed_is_automatic_even_so(host: Booted, watched: Watched, restarts: int) -> None:
    host.run(["touch", "/run/loop"])
    host.systemctl("start", "e-loops.service")
    ended(watched, "e-loops.service", 1 + restarts)
    waits(watched, "e-loops.service")
    host.run(["rm", "/run/loop"])
    host.systemctl("reset-failed", "e-loops.service")
    record = up(watched, "e-loops.service")
    assert watched.counts("e-loops.service") == {"manual main": 1, "auto main": len(record.starts) - 1}
    assert len(record.starts) >= 2 + restarts


def test_a_kill_is_a_failure_without_a_job_of_systemds(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-killed.service")
    up(watched, "e-killed.service")
    host.systemctl("kill", "--signal=KILL", "e-killed.service")
    record = ended(watched, "e-killed.service")
    assert ends(record) == [("signal", 9, False)]
    assert (record.failures_total, record.unexpected_stops_total) == ({"signal": 1}, 0)


def test_an_exit_with_success_and_unasked_is_an_unexpected_stop(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-leaves.service")
    record = ended(watched, "e-leaves.service")
    assert ends(record) == [("success", 0, False)]
    assert record.unexpected_stops_total == 1
    assert not record.stopped


def test_a_unit_that_another_upholds_ends_unexpectedly_each_time(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-upholds.service")
    record = ended(watched, "e-upheld.service", 3)
    host.systemctl("stop", "e-upholds.service")
    assert ends(record) == [("success", 0, False)] * len(ends(record))
    assert record.unexpected_stops_total == len(ends(record))


@pytest.mark.parametrize("action", ["start", "restart"])
def test_an_end_that_began_before_a_job_came_was_not_asked_for(host: Booted, watched: Watched, action: str) -> None:
    host.systemctl("start", "e-lingers.service")
    watched.until(lambda: watched.record("e-lingers.service").state == "deactivating")
    host.systemctl("--no-block", action, "e-lingers.service")
    watched.until(lambda: watched.unit("e-lingers.service").job != 0)
    host.run(["touch", GO])
    record = ended(watched, "e-lingers.service", 2)
    assert ends(record)[:1] == [("success", 0, False)]
    assert record.unexpected_stops_total == 2


def test_an_end_during_a_reload_was_not_asked_for(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-reloads.service")
    up(watched, "e-reloads.service")
    host.systemctl("reload", "e-reloads.service", check=False)
    record = ended(watched, "e-reloads.service")
    assert ends(record) == [("success", 15, False)]
    assert record.unexpected_stops_total == 1


def test_a_stop_during_a_reload_was_asked_for(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-reloads-long.service")
    up(watched, "e-reloads-long.service")
    host.systemctl("--no-block", "reload", "e-reloads-long.service")
    watched.until(lambda: watched.record("e-reloads-long.service").state == "reloading")
    host.systemctl("stop", "e-reloads-long.service")
    record = ended(watched, "e-reloads-long.service")
    assert ends(record) == [("signal", 15, True)], "as ExecReload= was killed"


def test_a_stop_and_a_restart_are_ends_that_were_asked_for(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-killed.service")
    host.systemctl("restart", "e-killed.service")
    host.systemctl("stop", "e-killed.service")
    record = ended(watched, "e-killed.service", 2)
    assert watched.counts("e-killed.service") == {"manual main": 2}
    assert ends(record) == [("success", 15, True)] * 2
    assert (record.failures_total, record.unexpected_stops_total, record.stopped) == ({}, 0, True)


def test_each_run_of_a_unit_that_is_unloaded_at_once_is_reported(host: Booted, watched: Watched) -> None:
    for _ in range(20):
        host.systemctl("start", "e-once.service", check=False)  # returns when it has ended
    record = ended(watched, "e-once.service", 20)
    assert watched.counts("e-once.service") == {"manual main": 20}
    assert ends(record) == [("exit-code", 1, False)] * 20
    assert record.failures_total == {"exit-code": 20}


def test_each_run_of_a_transient_unit_that_is_unloaded_at_once_is_reported(host: Booted, watched: Watched) -> None:
    for _ in range(5):
        oneshot = ["systemd-run", "--collect", "--unit=e-transient", "--property=Type=oneshot", "/bin/false"]
        host.run(oneshot, check=False)
    record = ended(watched, "e-transient.service", 5)
    assert watched.counts("e-transient.service") == {"manual main": 5}
    assert record.failures_total == {"exit-code": 5}
    assert record.nrestarts == 0


def test_a_unit_that_lives_for_a_moment_is_seen_from_the_second_time_on(host: Booted) -> None:
    host.write_unit("brief@.service", UNITS["e-once.service"])
    host.systemctl("daemon-reload")
    with Watched(host, "brief@*.service") as watched:
        host.systemctl("start", "brief@1.service", check=False)
        watched.source.read(time.monotonic() + 30)
        for _ in range(20):
            host.systemctl("start", "brief@1.service", check=False)
        record = ended(watched, "brief@1.service", 20)
        assert watched.counts("brief@1.service") in ({"manual main": 20}, {"manual main": 21})
        assert record.failures_total["exit-code"] in (20, 21)


def test_a_unit_that_systemd_learns_of_while_it_is_watched_starts_for_the_first_time(host: Booted) -> None:
    with Watched(host, "new-*.service", discover=True, is_engine_command=lambda argv: "1234" in argv) as watched:
        host.run(["systemd-run", "--unit=new-a", "/bin/sleep", "1000"])
        host.run(["systemd-run", "--unit=other-engine", "/bin/sleep", "1234"])
        up(watched, "new-a.service")
        up(watched, "other-engine.service")
        assert watched.counts("new-a.service") == {"manual main": 1}
        assert watched.counts("other-engine.service") == {"manual main": 1}
    with Watched(host, "new-*.service", discover=True) as watched:
        watched.source.watch(["other-engine.service"])
        up(watched, "new-a.service")
        up(watched, "other-engine.service")
        assert watched.counts("new-a.service") == {}, "it was there before"
        assert watched.counts("other-engine.service") == {}
        host.systemctl("stop", "new-a.service", "other-engine.service")
        assert ends(ended(watched, "new-a.service")) == [("success", 15, True)]


def test_a_unit_that_is_watched_again_has_not_ended_meanwhile(host: Booted) -> None:
    with Watched(host, "again-*.service") as watched:
        host.run(["systemd-run", "--unit=again-a", "/bin/sleep", "1000"])
        up(watched, "again-a.service")
        for patterns in ((), ("again-*.service",)):  # a SIGHUP with the pattern taken out, and one with it put back
            watched.source.configure(patterns=patterns, discover=False)
            watched.source.read(time.monotonic() + 10)
        host.systemctl("kill", "--signal=KILL", "again-a.service")
        record = ended(watched, "again-a.service")
        assert watched.counts("again-a.service") == {"manual main": 1}
        assert ends(record) == [("signal", 9, False)]
        assert record.failures_total == {"signal": 1}


def test_an_instance_is_a_unit_of_its_own(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e@3.service")
    record = ended(watched, "e@3.service")
    assert watched.counts("e@3.service") == {"manual main": 1}
    assert ends(record) == [("exit-code", 3, False)]


def test_a_reload_and_a_reexecution_are_no_end_and_no_start(host: Booted, watched: Watched) -> None:
    host.systemctl("start", "e-killed.service")
    up(watched, "e-killed.service")
    host.systemctl("daemon-reload")
    host.systemctl("daemon-reexec")
    watched.until(lambda: watched.source._resyncs["systemd"] == 1)
    host.systemctl("restart", "dbus.service")
    watched.until(lambda: watched.source._resyncs["bus"] == 1, 15)
    record = watched.record("e-killed.service")
    assert watched.counts("e-killed.service") == {"manual main": 1}
    assert ends(record) == []
    host.systemctl("stop", "e-killed.service")
    assert ends(ended(watched, "e-killed.service")) == [("success", 15, True)]
    events = [event for event in watched.events if event.unit.id.name == "e-killed.service"]
    assert sum(event.gap for event in events) == 3, "once for each connection and each run of systemd"
    assert all(a.unit != b.unit or b.gap for a, b in pairwise(events))
