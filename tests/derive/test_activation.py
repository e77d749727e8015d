"""Up, and since when: systemd's states and timestamps as facts measured on 252 and read from the source of 254+."""

from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.values import HOST, in_service, process, table, unit

from llmhost.derive.activation import (
    activation_began,
    is_of_present_activation,
    is_up,
    main_process,
    restart_is_queued,
)
from llmhost.model.host import Host
from llmhost.model.process import Process
from llmhost.model.unit import Unit, UnitSettings


@pytest.mark.parametrize(
    ("active", "sub", "up"),
    [
        ("active", "running", True),
        ("active", "exited", True),
        ("reloading", "reload", True),
        ("refreshing", "running", True),
        ("deactivating", "stop-sigterm", True),
        ("activating", "start-pre", True),
        ("activating", "start", True),
        ("activating", "auto-restart", False),
        ("activating", "auto-restart-queued", False),
        ("failed", "failed-before-auto-restart", False),
        ("failed", "failed", False),
        ("inactive", "dead", False),
        ("maintenance", "cleaning", False),
    ],
)
def test_a_unit_is_up_unless_its_run_has_ended(active: str, sub: str, up: bool) -> None:
    assert is_up(unit(active=active, sub=sub)) is up


@pytest.mark.parametrize(
    ("times", "began"),
    [
        # at the start attempt, not when the first process was there
        ({"condition_monotonic": 49.9, "inactive_exit_monotonic": 50.0}, 49.9),
        # from systemd 254 on, a restart does not check conditions again
        ({"condition_monotonic": 10.0, "inactive_enter_monotonic": 79.9, "inactive_exit_monotonic": 80.0}, 79.9),
        # before 254 it does
        ({"condition_monotonic": 90.0, "inactive_enter_monotonic": 79.9, "inactive_exit_monotonic": 90.1}, 90.0),
        # with RestartMode=direct only the exit from active shows it
        ({"condition_monotonic": 10.0, "inactive_exit_monotonic": 10.1, "active_exit_monotonic": 70.0}, 70.0),
    ],
)
def test_an_activation_began_at_the_last_of_the_times_before_its_processes(times: dict[str, Any], began: float) -> None:
    assert activation_began(unit(**times)) == began


# a first attempt at 10 s, which ended at 12 s; the second one's guard began at 20.01 s, its main process at 60 s
DIRECT: dict[str, Any] = {
    "condition_monotonic": 10.0,
    "inactive_exit_monotonic": 10.1,
    "nrestarts": 1,
    "state_change_monotonic": 60.1,
    "exec_main_start_monotonic": 60.0,
}


@pytest.mark.parametrize(
    ("times", "began"),
    [
        ({"first_process_monotonic": 20.125}, 20.025),  # it may have been stamped late
        # seen to begin, in the state of before
        ({"begun_after_monotonic": 20.0}, 20.0),
        # seen in the state that it had led to already: that is no time before it
        ({"begun_after_monotonic": 60.1}, 60.0),
        # after a daemon-reload nobody has seen it begin
        ({}, 60.0),
        ({"exec_main_start_monotonic": None}, None),
        ({"settings": UnitSettings(restart_mode="direct", service_type="forking")}, None),
        # it was active once since: that is later
        ({"first_process_monotonic": 20.01, "active_exit_monotonic": 30.0}, 30.0),
        # the first attempt of all
        ({"nrestarts": 0}, 10.0),
        # with the other mode it is no further attempt
        ({"settings": UnitSettings(restart_mode="normal"), "first_process_monotonic": 20.01}, 10.0),
    ],
)
def test_an_attempt_of_restart_mode_direct_began_when_itself_did(times: dict[str, Any], began: float | None) -> None:
    direct = {**DIRECT, "settings": UnitSettings(restart_mode="direct", service_type="notify")}
    assert activation_began(unit(sub="start", active="activating", **(direct | times))) == began


@pytest.mark.parametrize(
    ("mode", "state", "job", "queued"),
    [
        # up to systemd 253, which has no RestartMode=
        ("", "activating auto-restart", 0, False),
        ("", "activating auto-restart", 8, True),
        ("", "inactive dead", 8, True),
        ("", "activating start", 8, False),
        # from 254 on
        ("normal", "activating auto-restart", 0, False),
        ("normal", "activating auto-restart-queued", 8, True),
        ("normal", "failed failed-before-auto-restart", 8, False),
        ("normal", "inactive dead", 8, False),
        ("direct", "activating auto-restart", 8, False),
        ("direct", "activating auto-restart-queued", 8, True),
        ("direct", "activating start-pre", 8, False),
    ],
)
def test_a_restart_is_queued_by_its_job_or_from_254_on_by_its_state(
    mode: str, state: str, job: int, queued: bool
) -> None:
    active, sub = state.split()
    waiting = unit(active=active, sub=sub, job=job, settings=UnitSettings(restart_mode=mode))
    assert restart_is_queued(waiting) is queued


def test_while_deactivating_the_exit_from_active_is_no_beginning() -> None:
    stopping = unit(active="deactivating", sub="stop-sigterm", active_exit_monotonic=70.0)
    assert activation_began(stopping) == 9.0


def test_a_start_that_waits_for_a_stop_does_not_make_the_running_processes_leftovers() -> None:
    # measured on 252: systemctl start during a slow stop takes ConditionTimestamp anew, 2 s after the main process
    stopping = unit(
        active="deactivating",
        sub="stop-sigterm",
        condition_monotonic=4165.0,
        inactive_exit_monotonic=4162.9,
        active_exit_monotonic=4164.0,
        inactive_enter_monotonic=4100.0,
    )
    assert activation_began(stopping) == 4100.0
    assert activation_began(replace(stopping, inactive_enter_monotonic=None)) == 0.0


def present(start: int, watched: Unit = unit(), host: Host = HOST, main: Process | None = None) -> bool | None:  # noqa: B008
    return is_of_present_activation(process(5, in_service("vllm.service"), start=start), watched, host, main)


def test_a_process_started_within_the_tick_of_the_start_is_of_the_present_activation() -> None:
    # systemd noted 9.004 s; the process began at 9.008 s, which proc rounds down to tick 900
    started = unit(condition_monotonic=9.004, inactive_exit_monotonic=9.01)
    assert present(900, started) is True
    assert present(899, started) is False


def test_what_started_after_the_main_process_is_of_its_activation_whatever_the_clocks_say() -> None:
    main = process(4, in_service("vllm.service"), start=500)
    assert present(500, main=main) is True
    assert present(499, main=main) is False  # 4.99 s, before 9 s


def test_after_a_suspend_only_what_holds_for_every_time_of_it_is_said() -> None:
    slept = replace(HOST, boottime_ahead_seconds=3600.0)
    # began at 9 s on the monotonic clock; whether the suspend was before or after these starts is not known
    assert present(360_950, host=slept) is True  # 9.5 s, or later
    assert present(880, host=slept) is False  # 8.8 s at most
    assert present(5_000, host=slept) is None  # 50 s, or before boot
    main = process(4, in_service("vllm.service"), start=910)
    assert present(5_000, host=slept, main=main) is True


def test_a_unit_without_timestamps_proves_nothing() -> None:
    assert present(950, unit(condition_monotonic=None)) is None


def test_a_main_process_is_one_in_the_unit() -> None:
    watched = unit(main_pid=4)
    member, other = process(4, in_service("vllm.service")), process(4, in_service("ssh.service"))
    assert main_process(watched, table([member])) == member
    assert main_process(watched, table([other])) is None
    assert main_process(watched, table([])) is None
