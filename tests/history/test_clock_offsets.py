"""The wall clock's offset in the history. Times are seconds since boot; the boot was at 1000 by the right clock."""

from dataclasses import replace

from tests.fakes.values import HOST, snapshot

from llmhost.derive.history.clock_offsets import next_clock_offsets
from llmhost.model.clock_offset import ClockOffset
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import UnitsReport


def seen(
    monotonic: float, offset: float, *, suspended: float = 0.0, boot_times: tuple[tuple[float, float], ...] = ()
) -> Snapshot:
    host = Ok(replace(HOST, boottime_ahead_seconds=suspended))
    taken = snapshot(at=monotonic + suspended + offset, at_monotonic=monotonic, host=host)
    return replace(taken, units=Ok(UnitsReport(systemd_version="252", units=(), boot_times=boot_times)))


def after(*snapshots: Snapshot) -> list[tuple[float, float]]:
    found: tuple[ClockOffset, ...] = ()
    for each in snapshots:
        found = next_clock_offsets(found, each)
    return [(offset.boottime, round(offset.seconds, 3)) for offset in found]


def test_while_the_clock_is_not_set_its_first_and_its_last_offset_are_kept() -> None:
    assert after(*(seen(at, 1000.0) for at in (60.0, 75.0, 90.0, 105.0))) == [(60.0, 1000.0), (105.0, 1000.0)]
    steered = after(*(seen(at, 1000.0 + at / 1000) for at in (100.0, 200.0, 300.0, 400.0, 500.0)))
    assert steered == [(100.0, 1000.1), (300.0, 1000.3), (500.0, 1000.5)]


def test_a_step_is_kept_between_the_observations_beside_it_forward_and_back() -> None:
    assert after(*(seen(at, 1000.0) for at in (60.0, 75.0)), *(seen(at, 4600.0) for at in (90.0, 105.0, 120.0))) == [
        (60.0, 1000.0),
        (75.0, 1000.0),
        (90.0, 4600.0),
        (120.0, 4600.0),
    ]
    there_and_back = after(seen(60.0, 1000.0), seen(75.0, 4600.0), seen(90.0, 1000.0))
    assert there_and_back == [(60.0, 1000.0), (75.0, 4600.0), (90.0, 1000.0)]


def test_systemd_knows_the_clock_as_it_was_at_the_boot() -> None:
    boot = ((-6195.0, 5.0), (1030.0, 30.0))
    assert after(
        seen(9000.0, 1000.0), seen(9030.0, 1000.0, boot_times=boot), seen(9060.0, 1000.0, boot_times=boot)
    ) == [
        (5.0, -6200.0),
        (30.0, 1000.0),
        (9060.0, 1000.0),
    ]


def test_after_a_suspend_systemds_times_tell_nothing_and_our_own_count_it() -> None:
    assert after(seen(9000.0, 1000.0, suspended=500.0, boot_times=((1005.0, 5.0),))) == [(9500.0, 1000.0)]


def test_an_older_snapshot_and_one_without_clocks_change_nothing() -> None:
    assert after(seen(60.0, 1000.0), seen(59.0, 4600.0)) == [(60.0, 1000.0)]
    assert after(seen(60.0, 1000.0), replace(seen(75.0, 1000.0), host=Failed(Cause.NO_PROCFS))) == [(60.0, 1000.0)]


def test_the_oldest_are_left_out_beyond_a_hundred() -> None:
    found = after(*(seen(float(at), 1000.0 + at) for at in range(1, 151)))
    assert (len(found), found[0], found[-1]) == (100, (51.0, 1051.0), (150.0, 1150.0))
