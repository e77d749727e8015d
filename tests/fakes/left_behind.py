"""A service that leaves much behind: run inside a booted system as `python left_behind.py FILE`.

Its main process goes to sleep. What it has made by then it writes to FILE, as JSON: {name: pid}, and the path of a
segment. All ignore SIGTERM and outlive it, but for the `engine`, which ends at once, so that a subreaper has adopted
what is of it:

- `worker`: a child; `mover`: one in a process group of its own; `daemon`: one that has double-forked into a session of
  its own; `reaper`: a subreaper; `adopted`: a child of the engine's, which the reaper has adopted;
- `tracker`: Python's resource tracker, of which the creator is the engine, and `adopted` has its pipe; it knows of the
  segment.
"""

import ctypes
import json
import os
import signal
import sys
import time
from collections.abc import Callable
from multiprocessing import resource_tracker
from multiprocessing.shared_memory import SharedMemory

pids: dict[str, object] = {}


def made(name: str, code: Callable[[], None]) -> None:
    """Fork one, which reports its pid when it is ready, and what it has made itself."""
    reading, writing = os.pipe()
    if os.fork() == 0:
        os.close(reading)
        pids.clear()
        code()
        pids[name] = os.getpid()
        os.write(writing, json.dumps(pids).encode() + b"\n")
        os.close(writing)
        sleep()
    os.close(writing)
    with os.fdopen(reading) as stream:
        pids.update(json.loads(stream.readline()))  # its end others may have as well


def sleep() -> None:
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    while True:
        time.sleep(1000)


def moves() -> None:
    os.setpgid(0, 0)


def doubles() -> None:
    if os.fork() != 0:
        os._exit(0)
    os.setsid()


def adopts() -> None:
    assert ctypes.CDLL(None).prctl(36, 1, 0, 0, 0) == 0  # PR_SET_CHILD_SUBREAPER
    reading, writing = os.pipe()
    engine = os.fork()
    if engine == 0:
        os.close(reading)
        segment = SharedMemory(create=True, size=4096)
        made("adopted", lambda: None)
        pids["tracker"] = resource_tracker._resource_tracker._pid  # type: ignore[attr-defined]  # nothing else tells
        pids["segment"] = f"/dev/shm/{segment.name}"
        os.write(writing, json.dumps(pids).encode() + b"\n")
        os.kill(os.getpid(), signal.SIGKILL)
    os.close(writing)
    with os.fdopen(reading) as stream:
        pids.update(json.loads(stream.readline()))  # its end others may have as well
    os.waitpid(engine, 0)


def main() -> None:
    for name, code in (("worker", lambda: None), ("mover", moves), ("daemon", doubles), ("reaper", adopts)):
        made(name, code)
    with open(f"{sys.argv[1]}.new", "w") as file:  # noqa: PTH123
        json.dump(pids, file)
    os.rename(f"{sys.argv[1]}.new", sys.argv[1])  # noqa: PTH104
    while True:
        time.sleep(1000)


if __name__ == "__main__":
    main()
