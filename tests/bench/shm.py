"""The cost of reading shared memory: `python -m tests.bench.shm`, part of `make bench`; needs root.

It runs in PID and mount namespaces of its own, with a tmpfs of its own at /dev/shm: real processes, asleep, and eight
more with some 5,000 lines of maps and 100 descriptors each, which hold the files. Then `fuser -m` and `lsof` look at
the same, in the same run, where they are installed.

"cold" is the first look of a new source, which has to look at everything. "warm" is the median of those that follow, by
wall clock, and the mean of their CPU times. "scan" is the median of full scans, which a host makes at most once in a
grace time, and only while a file has no holder.
"""

import argparse
import os
import platform
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tests.bench.sleepers import sleepers

from llmhost.model.segment import SharedMemory
from llmhost.sources.shm.source import ShmSource

ENGINES, LINES, DESCRIPTORS = 8, 5000, 100
HELD, STALE = 100, 10
GRACE_SECONDS = 1e6
SHM = Path("/dev/shm")
# Every other page of a mapping is made unreadable, so that the kernel keeps as many lines. Each file is mapped, and
# not open: as torch, semaphores and vLLM's CPU workers do.
ENGINE = """
import ctypes, mmap, os, sys
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_int, ctypes.c_int, ctypes.c_long]
libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]
lines, descriptors, first, step, files = map(int, sys.argv[1:])
base = libc.mmap(None, lines * 4096, 3, 34, -1, 0)
for page in range(0, lines, 2):
    libc.mprotect(base + page * 4096, 4096, 0)
kept = [os.open("/dev/null", os.O_RDONLY) for _ in range(descriptors)]
for number in range(first, files, step):
    file = os.open(f"/dev/shm/psm_{number:08x}", os.O_RDWR | os.O_CREAT)
    os.ftruncate(file, 4096)
    assert libc.mmap(None, 4096, 3, 1, file, 0) != 2**64 - 1
    os.close(file)
print(flush=True)
sys.stdin.read()
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    name: str
    cold_ms: float
    warm_ms: float
    warm_cpu_ms: float
    scan_ms: float | None


@contextmanager
def engines(files: int) -> Iterator[None]:
    arguments = [(LINES, DESCRIPTORS, number, ENGINES, files) for number in range(ENGINES)]
    started = [
        subprocess.Popen([sys.executable, "-c", ENGINE, *map(str, each)], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        for each in arguments
    ]
    try:
        for engine in started:
            assert engine.stdout is not None
            assert engine.stdout.readline()
        yield
    finally:
        for engine in started:
            engine.kill()
            engine.communicate()


def timed(run: Callable[[], object]) -> tuple[float, float]:
    """Give wall and CPU milliseconds of one run in this process."""
    spent, began = time.process_time(), time.perf_counter()
    run()
    return (time.perf_counter() - began) * 1000, (time.process_time() - spent) * 1000


def measured(name: str, rounds: int, *, stale: int) -> Cost:
    source = ShmSource(shm=SHM, procfs=Path("/proc"), grace_seconds=GRACE_SECONDS, trust_pid_namespace=True)

    def read() -> SharedMemory:
        return source.read(time.monotonic() + 60)

    cold, _ = timed(read)
    unheld = sum(segment.holders == frozenset() for segment in read().segments)
    assert unheld == stale, f"{unheld} files are found unheld, not {stale}"
    warm = [timed(read) for _ in range(rounds)]
    source.configure(names=(), grace_seconds=0.0)
    scans = [timed(read)[0] for _ in range(3)] if stale else []
    return Cost(
        name=name,
        cold_ms=cold,
        warm_ms=statistics.median(wall for wall, _ in warm),
        warm_cpu_ms=statistics.mean(cpu for _, cpu in warm),
        scan_ms=statistics.median(scans) if scans else None,
    )


def peer(*command: str) -> float | None:
    if shutil.which(command[0]) is None:
        return None
    quiet = subprocess.DEVNULL
    return min(timed(lambda: subprocess.run(command, stdout=quiet, stderr=quiet, check=False))[0] for _ in range(3))


def with_stale(count: int) -> None:
    for number in range(count):
        os.mknod(SHM / f"psm_dead{number:04x}")


def empty(directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()


def bench(processes: int, files: int, rounds: int) -> None:
    """Measure with all files held; with a few stale ones beside them; and with few held and the rest stale."""
    costs, peers = [], []
    with sleepers(processes - ENGINES):
        with engines(files):
            costs.append(measured(f"{files} held", rounds, stale=0))
            with_stale(STALE)
            costs.append(measured(f"{files} held, {STALE} stale", rounds, stale=STALE))
            # given the filesystem, as 100,000 names are more than a command line takes
            peers = [(" ".join(command), peer(*command)) for command in (("fuser", "-m", str(SHM)), ("lsof", str(SHM)))]
        empty(SHM)
        with engines(HELD):
            with_stale(files - HELD)
            costs.append(measured(f"{HELD} held, {files - HELD} stale", rounds, stale=files - HELD))
    empty(SHM)
    print(f"\n{processes} processes")
    for cost in costs:
        scan = f"{cost.scan_ms:10.1f}" if cost.scan_ms is not None else f"{'none':>10}"
        print(f"  {cost.name:24}{cost.cold_ms:10.1f}{cost.warm_ms:10.1f}{cost.warm_cpu_ms:10.1f}{scan}")
    for name, wall in peers:
        print(f"  {name:24}{f'{wall:10.1f}' if wall is not None else 'not installed':>10}")


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.shm", description="What a look at shm costs.")
    parser.add_argument("--processes", type=int, nargs="*", default=[2000, 5000])
    parser.add_argument("--files", type=int, nargs="*", default=[1000, 100_000])
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if not given.inside:
        if os.geteuid() != 0:
            print("the look at shared memory is not measured: it needs root, for namespaces of its own")
            return
        own = ["unshare", "--pid", "--fork", "--mount", "--mount-proc", "--kill-child"]
        again = [sys.executable, "-m", "tests.bench.shm", *sys.argv[1:], "--inside"]
        sys.exit(subprocess.run([*own, *again], check=False).returncode)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "nr_inodes=1000000", "tmpfs", str(SHM)], check=True)
    print(
        f"{platform.machine()}, {os.cpu_count()} CPUs, Linux {platform.release()}, Python {platform.python_version()}"
    )
    print(f"{ENGINES} of the processes hold files, with {LINES} more lines of maps; {given.rounds} warm looks; ms\n")
    print(f"{'':26}{'cold':>10}{'warm':>10}{'warm CPU':>10}{'scan':>10}")
    for processes in given.processes:
        for files in given.files:
            bench(processes, files, given.rounds)


if __name__ == "__main__":
    main()
