"""A process that SIGKILL does not end, as one in state D."""

import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from tests.fakes.needs import missing


@pytest.fixture
def keep_from_dying() -> Iterator[Callable[[int], Callable[[], None]]]:
    """Yield a function that makes a process unreapable: as its tracer, we get to see its end and its parent does not.

    What it gives lets the process die.
    """
    tracers = []
    code = (
        "import ctypes, sys; libc = ctypes.CDLL(None, use_errno=True)\n"
        # PTRACE_SEIZE with PTRACE_O_TRACEEXIT: it stops on its way out, and has a command line still
        "print(libc.ptrace(0x4206, int(sys.argv[1]), None, ctypes.c_void_p(0x40)), flush=True); sys.stdin.read()"
    )

    def seize(pid: int) -> Callable[[], None]:
        tracer = subprocess.Popen([sys.executable, "-c", code, str(pid)], stdin=-1, stdout=-1, text=True)
        tracers.append(tracer)
        assert tracer.stdout is not None
        if tracer.stdout.readline().strip() != "0":
            missing("the right to trace processes")
        return lambda: _end(tracer)

    yield seize
    for tracer in tracers:
        _end(tracer)


def _end(tracer: "subprocess.Popen[str]") -> None:
    if tracer.poll() is None:
        tracer.communicate()
