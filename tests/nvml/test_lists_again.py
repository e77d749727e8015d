"""Process lists that are given again with memory that was read later: only where both still go together."""

import subprocess
from pathlib import Path

import pytest
from tests.fakes.nvml_reader import Driver, holders_of, memory_of

from llmhost.model.gpu import Gpu
from llmhost.model.ids import ProcessId
from llmhost.model.reading import Cause, Failed

GIB = 1 << 30
PID = 4242


def is_changing(gpu: Gpu) -> bool:
    return isinstance(gpu.holders, Failed) and gpu.holders.cause is Cause.CHANGING


def write_start(procfs: Path, ticks: int) -> None:
    stat = procfs / str(PID) / "stat"
    stat.parent.mkdir(parents=True, exist_ok=True)
    stat.write_text(f"{PID} (VLLM) ::Wor) S 1 {PID} {PID}{' 0' * 15} {ticks} 0 0\n")


def test_process_lists_are_read_once_in_their_time_and_memory_each_time(driver: Driver, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    driver.write(
        [
            f"system x trace={trace}",
            *("gpu 0", "gpu 1 mig=1", "mig 1 0 gi=1 ci=0"),
            *("proc 0 77 mem=1G", "proc 1 79 mem=3G gi=1 ci=0"),
        ]
    )
    reader = driver.reader(list_interval_seconds=100.0, procfs=tmp_path)
    reader.read()
    trace.unlink()
    plain, _, instance = reader.read().gpus
    assert (memory_of(plain).used_bytes, memory_of(instance).used_bytes) == (GIB, 3 * GIB)
    assert (list(holders_of(plain)), list(holders_of(instance))) == ([77], [79])
    calls = [line.split()[2] for line in trace.read_text().splitlines()]
    assert calls.count("nvmlDeviceGetMemoryInfo_v2") == 2
    assert not any("Processes" in call for call in calls)
    reader.clock.advance(100)
    reader.read()
    assert "nvmlDeviceGetComputeRunningProcesses_v3" in trace.read_text()


def test_a_list_is_not_given_with_memory_that_moved_since(driver: Driver, tmp_path: Path) -> None:
    """The second of two scrapers: what ended in between holds nothing, and what started has its holder."""
    before = ["gpu 0", "gpu 1", "gpu 2 mig=1", "mig 2 0 gi=1 ci=0", "proc 0 77 mem=80G", "proc 1 78 mem=2G"]
    driver.write(before)
    reader = driver.reader(list_interval_seconds=100.0, procfs=tmp_path)
    first = reader.read()
    assert list(holders_of(first.gpus[0])) == [77]
    driver.write([*before[:4], "proc 1 78 mem=2G", "proc 2 79 mem=3G gi=1 ci=0"])
    ended, same, parent, started = reader.read().gpus
    assert (memory_of(ended).used_bytes, memory_of(same).used_bytes, memory_of(started).used_bytes) == (
        0,
        2 * GIB,
        3 * GIB,
    )
    assert (is_changing(ended), is_changing(started)) == (True, True)
    assert list(holders_of(same)) == [78]
    assert (ended.up, ended.temperature_celsius, parent.holders) == (True, 40.0, first.gpus[2].holders)
    driver.write(before)
    again = reader.read()
    assert (list(holders_of(again.gpus[0])), list(holders_of(again.gpus[3]))) == ([77], [])
    driver.write([*before[:4], "proc 2 79 mem=3G gi=1 ci=0"])
    reader.clock.advance(100)
    ended, _, _, started = reader.read().gpus
    assert (list(holders_of(ended)), list(holders_of(started))) == ([], [79])


def test_of_two_that_read_in_turn_while_memory_moves_each_gets_holders(driver: Driver, tmp_path: Path) -> None:
    reader = driver.reader(procfs=tmp_path)
    for turn in range(4):
        driver.write(["gpu 0", f"proc 0 {77 + turn} mem={1 + turn}G"])
        assert {pid: holder.used_bytes for pid, holder in holders_of(reader.gpu()).items()} == {
            77 + turn: (1 + turn) * GIB
        }
    driver.write(["gpu 0", "proc 0 90 mem=2G"])
    (in_a_hurry,) = reader.read(seconds=0.4).gpus
    assert is_changing(in_a_hurry)
    assert memory_of(in_a_hurry).used_bytes == 2 * GIB


def test_a_list_is_not_given_once_a_process_of_it_has_ended(driver: Driver) -> None:
    """The driver gives memory back some time after the process is gone."""
    with subprocess.Popen(["sleep", "60"]) as process:
        driver.write(["gpu 0 used=80G", f"proc 0 {process.pid} mem=79G"])
        reader = driver.reader(list_interval_seconds=100.0)
        assert list(holders_of(reader.gpu())) == [process.pid]
        assert list(holders_of(reader.gpu())) == [process.pid]
        process.kill()
        process.wait()
        gpu = reader.gpu()
    assert memory_of(gpu).used_bytes == 80 * GIB
    assert is_changing(gpu)


@pytest.mark.parametrize("total", ["80G", "na"])
def test_a_list_without_bytes_is_given_while_its_processes_are_there(
    total: str, driver: Driver, tmp_path: Path
) -> None:
    write_start(tmp_path, 500)
    driver.write([f'gpu 0 name="NVIDIA GB10" total={total} used=60G', f"proc 0 {PID} mem=na", "proc 0 77 mem=1G"])
    reader = driver.reader(list_interval_seconds=100.0, procfs=tmp_path)
    for _ in range(2):
        holders = holders_of(reader.gpu())
        assert {pid: (holder.process, holder.used_bytes) for pid, holder in holders.items()} == {
            PID: (ProcessId(PID, 500), None),
            77: (None, GIB),  # gone when it was listed, and still
        }
    write_start(tmp_path, 501)
    assert is_changing(reader.gpu())
