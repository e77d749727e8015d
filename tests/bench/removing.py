"""The cost of removing a file of shared memory, also to its openers: `python -m tests.bench.removing`.

Part of `make bench`. "Opener" is a process that opens and closes a live file without a pause, which another holds;
"beside" is while that very file is checked again and again, each time to be spared. "frozen" is an opener that comes
while our child is stopped at its worst moment: when it has the lease, and the file still has its name.
"""

import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Thread

from tests.fakes.removals import OPENER, made, removal_of, stopped_child, stopping_program

from llmhost.act import lease_program
from llmhost.act.removing import MOST_SECONDS, SETTLE_SECONDS, Remover

FILES = 1000
# Opens a file until its input ends; tells the median and the longest wait in microseconds.
REOPENER = """
import os, select, sys, time
print(flush=True)
waits = []
while not select.select([sys.stdin], [], [], 0)[0]:
    for _ in range(100):
        began = time.perf_counter()
        os.close(os.open(sys.argv[1], os.O_RDWR))
        waits.append(time.perf_counter() - began)
waits.sort()
print(waits[len(waits) // 2] * 1e6, waits[-1] * 1e6)
"""


@contextmanager
def folder() -> Iterator[Path]:
    name = tempfile.mkdtemp(prefix="llmhost-bench-", dir="/dev/shm")
    try:
        yield Path(name)
    finally:
        shutil.rmtree(name)


def median_us(shm: Path, *, settle_seconds: float, in_use: bool = False) -> float:
    """Return the median time that the Remover takes for a file."""
    took = []
    with Remover(shm, settle_seconds=settle_seconds) as remover:
        remover.remove(removal_of(made(shm), shm))  # starts the child
        for number in range(FILES if not settle_seconds else 100):
            path = made(shm, f"psm_{number:08x}")
            with path.open("rb") if in_use else tempfile.TemporaryFile():
                removal = removal_of(path, shm)
                began = time.perf_counter()
                remover.remove(removal)
                took.append(time.perf_counter() - began)
    return statistics.median(took) * 1e6


def start_ms(shm: Path) -> float:
    began = time.perf_counter()
    with Remover(shm, settle_seconds=0) as remover:
        remover.remove(removal_of(made(shm), shm))
    return (time.perf_counter() - began) * 1e3


def opener_us(shm: Path, *, beside: bool) -> tuple[float, float]:
    path = made(shm)
    command = [sys.executable, "-c", REOPENER, str(path)]
    with path.open("rb"), subprocess.Popen(command, stdin=-1, stdout=-1, text=True) as opener:
        assert opener.stdout is not None
        opener.stdout.readline()
        until = time.monotonic() + 2
        with Remover(shm) as remover:
            while time.monotonic() < until:
                if beside:
                    remover.remove(removal_of(path, shm))
                else:
                    time.sleep(0.1)
        median, longest = opener.communicate()[0].split()
    return float(median), float(longest)


def frozen_s(shm: Path, scratch: Path) -> float:
    own, lease_program.__file__ = lease_program.__file__, str(stopping_program(scratch, "rename"))
    path = made(shm)
    with Remover(shm) as remover:
        thread = Thread(target=remover.remove, args=(removal_of(path, shm),))
        thread.start()
        stopped_child()
        output = subprocess.run([*OPENER, path], input="\n", capture_output=True, text=True, check=True).stdout
        thread.join()
    lease_program.__file__ = own
    return float(output.split()[-1])


def main() -> None:
    print(f"{os.cpu_count()} CPUs, Linux {os.uname().release}; by wall clock, medians")
    with folder() as shm, tempfile.TemporaryDirectory() as scratch:
        print(f"start of the child and one file: {statistics.median(start_ms(shm) for _ in range(9)):.0f} ms")
        print(f"a file that is removed: {median_us(shm, settle_seconds=0):.0f} µs", end="")
        whole = median_us(shm, settle_seconds=SETTLE_SECONDS)
        print(f", and with the {SETTLE_SECONDS * 1e3:g} ms for who may be on the way: {whole:.0f} µs")
        print(f"a file that is in use: {median_us(shm, settle_seconds=SETTLE_SECONDS, in_use=True):.0f} µs")
        for beside in (False, True):
            middle, longest = opener_us(shm, beside=beside)
            print(f"opener {'beside' if beside else 'alone'}: {middle:.1f} µs, at most {longest:.0f} µs")
        print(f"opener, frozen: {frozen_s(shm, Path(scratch)):.2f} s (bound {MOST_SECONDS:g} s)")


if __name__ == "__main__":
    main()
