"""A Ctrl-C ends the demo with one line, however early it comes."""

import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.children import children_of

ROOT = Path(__file__).parents[2]


def _blocks(pid: int, number: signal.Signals) -> bool:
    """Say whether the process holds the signal back, or has already: that may be too short to be seen."""
    status = Path(f"/proc/{pid}/status").read_text()
    (mask,) = [line.split()[1] for line in status.splitlines() if line.startswith("SigBlk:")]
    return bool(int(mask, 16) >> (number - 1) & 1) or bool(children_of(pid))


def _has_child(pid: int, _: signal.Signals) -> bool:
    return bool(children_of(pid))


@pytest.mark.parametrize("when", [_blocks, _has_child], ids=["before-it-can-take-it", "as-it-starts-the-other"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM], ids=lambda number: number.name)
def test_a_signal_that_comes_as_it_starts_ends_it_with_one_line(
    number: signal.Signals, when: Callable[[int, signal.Signals], bool]
) -> None:
    with subprocess.Popen(
        [sys.executable, "-m", "tests.demo", "--no-wait"],
        cwd=ROOT,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as demo:
        until = time.monotonic() + 120
        while not when(demo.pid, number):
            assert time.monotonic() < until, "it does not get there"
        demo.send_signal(number)
        said, wrong = demo.communicate(timeout=120)
    assert (demo.returncode, said, wrong) == (130, "", "\ndemo: ended; nothing of it runs any more\n")
