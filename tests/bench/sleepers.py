"""Processes that sleep, for benchmarks on a full machine."""

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def sleepers(count: int) -> Iterator[list[int]]:
    """Start processes that sleep, children of one shell of ours; give their pids."""
    script = f"for i in $(seq {count}); do sleep 1000 & done; jobs -p; echo; exec sleep 1000"
    with subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True) as shell:
        assert shell.stdout is not None
        pids = [int(line) for line in iter(shell.stdout.readline, "\n")]
        try:
            yield pids
        finally:
            shell.kill()
            shell.wait()
            for pid in pids:
                os.kill(pid, 9)
            if os.getpid() == 1:  # in a PID namespace of its own, where they are our children now
                for pid in pids:
                    os.waitpid(pid, 0)
