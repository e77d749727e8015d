"""Driver pauses: no read touches the driver until it is resumed."""

import os
import signal
import threading
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.children import children_of
from tests.fakes.nvml_reader import Driver, eventually

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.nvml.source import _Waiting

FOUR = [f"gpu {i} uuid=GPU-{i}" for i in range(4)]
WHY = "until 12:00:00"


def has_ended(pid: int) -> bool:
    return not Path(f"/proc/{pid}").exists()


def test_no_read_touches_the_driver_until_it_is_taken_back(driver: Driver) -> None:
    driver.write(FOUR)
    before = children_of()
    reader = driver.reader()
    reader.read()
    child = reader.child_pid
    assert reader.source.pause(WHY) == ()
    assert has_ended(child)
    for read in (reader.read, reader.read_memory):
        with pytest.raises(SourceError) as caught:
            read()
        assert (caught.value.cause, caught.value.detail, caught.value.stuck) == (Cause.RELEASED, WHY, None)
    assert reader.source.pause("until 13:00:00") == ()
    assert reader.fail().detail == "until 13:00:00"
    assert reader.source.doing() == "no NVML child runs"
    assert children_of() == before
    reader.source.resume()
    assert reader.read().listed == 4
    assert reader.read_memory().listed == 4


def test_what_was_released_before_the_first_read_never_starts_a_child(driver: Driver) -> None:
    driver.write([*FOUR, f"system x trace={driver.directory}/trace"])
    reader = driver.reader()
    assert reader.source.pause(WHY) == ()
    assert reader.fail().cause is Cause.RELEASED
    assert not (driver.directory / "trace").exists()
    reader.source.resume()
    reader.read()
    assert (driver.directory / "trace").exists()


@pytest.mark.parametrize("how", ["hang", "stop"])
def test_a_read_that_waits_for_the_child_ends_at_once_and_the_child_with_it(driver: Driver, how: str) -> None:
    driver.write(FOUR)
    reader = driver.reader()
    reader.read()
    child = reader.child_pid
    if how == "hang":
        driver.add("delay nvmlDeviceGetMemoryInfo_v2 3 hang")
    else:
        os.kill(child, signal.SIGSTOP)
    errors: list[SourceError] = []
    waiting = threading.Thread(target=lambda: errors.append(reader.fail(60)))
    waiting.start()
    eventually(lambda: isinstance(reader.source._state, _Waiting))
    began = time.monotonic()
    assert reader.source.pause(WHY) == ()
    waiting.join(10)
    assert time.monotonic() - began < 10, "and not 60 s"
    assert [error.cause for error in errors] == [Cause.RELEASED]
    assert has_ended(child)
    driver.write(FOUR)
    reader.source.resume()
    assert reader.read().listed == 4  # no wait ends early because of what ended the one before


def test_a_child_that_does_not_die_is_named_until_it_does(
    driver: Driver, keep_from_dying: Callable[[int], Callable[[], None]]
) -> None:
    driver.write(FOUR)
    reader = driver.reader(reap_seconds=0.05)
    reader.read()
    child = reader.child_pid
    let_die = keep_from_dying(child)
    assert reader.source.pause(WHY) == (child,)
    assert reader.source.pause(WHY) == (child,)
    assert reader.fail().cause is Cause.RELEASED
    let_die()
    eventually(lambda: reader.source.pause(WHY) == ())
    assert has_ended(child)


def test_what_failed_before_is_not_waited_for_after(driver: Driver) -> None:
    reader = driver.reader(failure_backoff=(60.0, 60.0))
    assert reader.fail().cause is Cause.NO_DRIVER
    driver.write(FOUR)
    assert reader.fail().cause is Cause.NO_DRIVER  # the clock stands still: too early for another try
    reader.source.pause(WHY)
    reader.source.resume()
    assert reader.read().listed == 4


def test_a_gpu_that_hung_before_is_asked_again_after(driver: Driver) -> None:
    hang = "delay nvmlDeviceGetMemoryInfo_v2 3 hang"
    driver.write(FOUR)
    reader = driver.reader(kill_after_seconds=60.0, hang_backoff=(300.0, 300.0))
    reader.read()
    driver.add(hang)
    reader.clock.advance(2)
    reader.fail(0.0)
    eventually(lambda: "on GPU 3" in reader.source.doing())
    reader.clock.advance(60)
    assert "killed" in reader.fail().detail
    driver.write(FOUR)  # reset
    reader.source.pause(WHY)
    reader.source.resume()
    assert [gpu.up for gpu in reader.read().gpus] == [True] * 4


def test_reads_from_all_sides_never_outlive_a_release(driver: Driver) -> None:
    driver.write(FOUR)
    before = children_of()
    reader = driver.reader()
    end = threading.Event()
    wrong: list[object] = []
    good: list[int] = []

    def keep_reading(read: Callable[[], object]) -> None:
        while not end.is_set():
            try:
                read()
                good.append(1)
            except SourceError as error:
                if error.cause is not Cause.RELEASED:
                    wrong.append(error)
                time.sleep(0.001)

    threads = [threading.Thread(target=keep_reading, args=(read,)) for read in (reader.read, reader.read_memory) * 2]
    for thread in threads:
        thread.start()
    try:
        for _ in range(12):
            had = len(good)
            eventually(lambda had=had: len(good) > had)  # type: ignore[misc]
            assert reader.source.pause(WHY) == ()
            assert children_of() == before
            time.sleep(0.01)  # for reads to go wrong in
            assert children_of() == before
            reader.source.resume()
    finally:
        end.set()
        for thread in threads:
            thread.join(10)
    assert wrong == []


def test_a_closed_source_stays_closed(driver: Driver) -> None:
    driver.write(FOUR)
    reader = driver.reader()
    reader.read()
    reader.source.pause(WHY)
    reader.source.close()
    assert reader.source.pause(WHY) == ()
    reader.source.resume()
    assert (reader.fail().cause, reader.fail().detail) == (Cause.UNKNOWN, "closed")
