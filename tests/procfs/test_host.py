"""The host's boot, clocks and memory."""

import os
import time
from pathlib import Path

import psutil
import pytest
from tests.fakes.procfs import BOOT_ID, write_proc

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.host import HostSource


def test_memory_and_boot_come_from_the_given_procfs(tmp_path: Path) -> None:
    write_proc(tmp_path, [], memory_total_kib=2_113_406_976, memory_available_kib=1_900_000_000)
    host = HostSource(procfs=tmp_path).read(float("inf"))
    assert host.memory_total_bytes == 2_164_128_743_424
    assert host.memory_available_bytes == 1_945_600_000_000
    assert host.boot_id == BOOT_ID
    assert host.ticks_per_second == os.sysconf("SC_CLK_TCK")


def test_this_host_is_read_as_the_kernel_gives_it() -> None:
    host = HostSource(procfs=Path("/proc")).read(float("inf"))
    meminfo = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    assert host.memory_total_bytes == int(meminfo["MemTotal"].split()[0]) * 1024
    assert 0 < host.memory_available_bytes < host.memory_total_bytes
    assert host.boot_id == Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    uptime = float(Path("/proc/uptime").read_text().split()[0])  # CLOCK_BOOTTIME
    assert host.boottime_ahead_seconds == pytest.approx(uptime - time.monotonic(), abs=0.1)


def test_a_source_reads_its_own_procfs_whatever_another_read_before(tmp_path: Path) -> None:
    here, there = HostSource(procfs=Path("/proc")), HostSource(procfs=write_proc(tmp_path, [], memory_total_kib=4096))
    total_bytes = here.read(0).memory_total_bytes
    assert there.read(0).memory_total_bytes == 4 << 20
    assert here.read(0).memory_total_bytes == total_bytes != 4 << 20
    assert psutil.PROCFS_PATH == "/proc"  # other users of psutil are not sent elsewhere


def test_a_procfs_without_a_boot_id_has_none(tmp_path: Path) -> None:
    write_proc(tmp_path, [])
    (tmp_path / "sys/kernel/random/boot_id").unlink()
    assert HostSource(procfs=tmp_path).read(0).boot_id == ""


@pytest.mark.parametrize("meminfo", [None, "", "MemTotal: lots kB\n", "nothing"])
def test_a_procfs_without_memory_figures_is_an_error_of_its_own(tmp_path: Path, meminfo: str | None) -> None:
    if meminfo is not None:
        (tmp_path / "meminfo").write_text(meminfo)
    with pytest.raises(SourceError) as caught:
        HostSource(procfs=tmp_path).read(0)
    assert caught.value.cause is Cause.NO_PROCFS
