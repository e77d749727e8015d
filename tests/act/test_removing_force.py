"""The removal of segments, raced: no process loses a file, and unused files are removed in the end."""

import json
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.act.force import Looker, under_a_lease
from tests.fakes.needs import needs, needs_root

ROUNDS = 700  # `make force`: 10,000


def forced(*arguments: str) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.act.force", "--json", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=300)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_no_file_that_somebody_has_or_comes_for_is_lost_and_no_stale_one_stays() -> None:
    needs_root()
    counts = forced("--rounds", str(ROUNDS), "--seed", "11")
    assert counts["lost"] == []
    assert counts["remaining"] == 0
    assert counts["rounds"] >= ROUNDS
    assert sum(many for result, many in counts["results"].items() if result.startswith("done")) > ROUNDS / 2
    assert min(counts["did"][what] for what in ("pounced in time", "renewed")) > 20  # or else nobody has raced


def test_without_a_lease_files_would_be_lost() -> None:
    """Else the racers are too slow to tell."""
    needs_root()
    assert forced("--rounds", "700", "--seed", "11", "--naively")["lost"]


# What programs do with multiprocessing, over and over; it fails if anything of it is gone.
PROGRAM = """
import multiprocessing, sys, time
from multiprocessing import shared_memory

def child(name, lock, queue):
    with lock:
        time.sleep(0.08)
        held = shared_memory.SharedMemory(name=name)
        queue.put(bytes(held.buf[:2]))
        held.close()

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    until = time.monotonic() + float(sys.argv[2])
    rounds = 0
    while time.monotonic() < until:
        held = shared_memory.SharedMemory(create=True, size=65536)
        held.buf[:2] = b"ok"
        lock, queue = context.Lock(), context.Queue()
        with lock:
            one = context.Process(target=child, args=(held.name, lock, queue))
            one.start()
            time.sleep(0.1)
        assert queue.get(timeout=30) == b"ok"
        one.join()
        assert one.exitcode == 0
        held.close()
        held.unlink()
        rounds += 1
    print(rounds)
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_programs_of_multiprocessing_lose_nothing(method: str, tmp_path: Path, inside: Callable[..., Any]) -> None:
    """They run for 3 s beside a cleaner that takes what is stale after 50 ms; dead ones' files go."""
    program = tmp_path / "program.py"
    program.write_text(textwrap.dedent(PROGRAM))
    found = inside(str(program), method)
    assert found["failed"] == []
    assert min(found["rounds"]) >= 2
    assert found["removed"] >= 3  # the files of the one that was killed
    assert found["left"] == []


@pytest.fixture
def inside() -> Callable[..., Any]:
    """Give a way to run `beside` in namespaces of its own: a tmpfs at /dev/shm, and no processes but ours."""
    needs_root()

    def run(*arguments: str) -> Any:  # noqa: ANN401 - JSON
        script = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
        here = [
            needs("unshare"),
            "--mount",
            "--pid",
            "--fork",
            "--mount-proc",
            "--kill-child",
            "sh",
            "-c",
            script,
            "sh",
        ]
        code = "import sys; from tests.act.test_removing_force import beside; beside(*sys.argv[1:])"
        done = subprocess.run(
            [*here, sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False, timeout=120
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def beside(program: str, method: str) -> None:
    """Clean /dev/shm up while programs use it; prints what came of it."""
    shm = Path("/dev/shm")
    programs = [
        subprocess.Popen(
            [sys.executable, program, method, "3"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        for _ in range(2)
    ]
    killed = subprocess.Popen([sys.executable, "-c", KILLED], stdout=subprocess.PIPE, text=True)
    assert killed.stdout is not None
    killed.stdout.readline()
    reader, step, removed = Looker(shm), under_a_lease(shm), 0
    killed.kill()
    killed.wait()
    while any(program.poll() is None for program in programs):
        for segment in reader.stale():
            removed += step(segment).startswith("done")
    ended = [program.communicate() for program in programs]
    for _ in range(6):
        time.sleep(0.05)
        for segment in reader.stale():
            removed += step(segment).startswith("done")
    remaining = [path.name for path in shm.iterdir()]
    failed = [errors for _, errors in ended if errors]
    sys.stdout.write(
        json.dumps(
            {"failed": failed, "rounds": [int(out or 0) for out, _ in ended], "removed": removed, "left": remaining}
        )
    )


# Leaves three files without a resource tracker, which would unlink them.
KILLED = """
import time
from multiprocessing import resource_tracker, shared_memory
resource_tracker.register = lambda *_: None
held = [shared_memory.SharedMemory(create=True, size=4096) for _ in range(3)]
print(flush=True)
time.sleep(100)
"""
