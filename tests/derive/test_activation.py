"""Up, and since when: systemd's states and timestamps as facts measured on 252 and read from the source of 254+."""

import pytest
from tests.fakes.values import HOST, in_service, process, unit

from llmhost.derive.activation import activation_began, is_of_present_activation, is_up


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


def test_the_activation_began_at_the_start_attempt_and_not_when_its_first_process_was_there() -> None:
    assert activation_began(unit(condition_monotonic=49.9, inactive_exit_monotonic=50.0)) == 49.9


def test_from_systemd_254_on_a_restart_does_not_check_conditions_again() -> None:
    seen = unit(condition_monotonic=10.0, inactive_enter_monotonic=79.9, inactive_exit_monotonic=80.0)
    assert activation_began(seen) == 79.9


def test_before_systemd_254_a_restart_checks_them() -> None:
    seen = unit(condition_monotonic=90.0, inactive_enter_monotonic=79.9, inactive_exit_monotonic=90.1)
    assert activation_began(seen) == 90.0


def test_with_restart_mode_direct_only_the_exit_from_active_tells() -> None:
    seen = unit(condition_monotonic=10.0, inactive_exit_monotonic=10.1, active_exit_monotonic=70.0)
    assert activation_began(seen) == 70.0


def test_while_deactivating_the_exit_from_active_is_no_beginning() -> None:
    stopping = unit(active="deactivating", sub="stop-sigterm", active_exit_monotonic=70.0)
    assert activation_began(stopping) == 9.0


def test_a_process_started_within_the_tick_of_the_start_is_of_the_present_activation() -> None:
    # systemd noted 9.004 s; the process began at 9.008 s, which proc rounds down to tick 900
    started = unit(condition_monotonic=9.004)
    assert is_of_present_activation(process(5, in_service("vllm.service"), start=900), started, HOST) is True
    assert is_of_present_activation(process(5, in_service("vllm.service"), start=899), started, HOST) is False


def test_suspend_time_is_taken_out_of_start_ticks() -> None:
    slept = type(HOST)(
        boot_id="b",
        ticks_per_second=100,
        boottime_ahead_seconds=3600.0,
        memory_total_bytes=1,
        memory_available_bytes=1,
    )
    # 3,609.5 s after boot, 3,600 of them asleep: 9.5 s on systemd's monotonic clock
    assert is_of_present_activation(process(5, start=360_950), unit(), slept) is True
    assert is_of_present_activation(process(5, start=360_850), unit(), slept) is False


def test_a_unit_without_timestamps_proves_nothing() -> None:
    assert is_of_present_activation(process(5), unit(condition_monotonic=None), HOST) is None
