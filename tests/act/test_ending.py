"""Exactly the planned processes are ended, with one SIGTERM each; trackers last, and never before their time."""

import errno
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.needs import needs, needs_root
from tests.fakes.unkillable import keep_from_dying
from tests.fakes.values import process

from llmhost.act.ending import end
from llmhost.decide.cleanup.steps import CleanupReport, Condition, Ending, Outcome, Plan, Result
from llmhost.model.ids import ProcessId
from llmhost.sources.procfs_files import parse_stat

__all__ = ["keep_from_dying"]
PROC = Path("/proc")
# Counts the SIGTERMs that it gets, in a file; ends at the first, `delay` seconds later, or never.
COUNTS = """
import os, signal, sys, time
count, delay = sys.argv[1], float(sys.argv[2])
def told(*_):
    with open(count, "a") as file: file.write("x")
    if delay >= 0: time.sleep(delay); os._exit(0)
signal.signal(signal.SIGTERM, told)
print("ready", flush=True)
while True: signal.pause()
"""


@pytest.fixture
def pids() -> Iterator[list[ProcessId]]:
    """Give a list for processes that a test started, to be ended after it."""
    started: list[ProcessId] = []
    yield started
    for identity in started:
        with suppress(ProcessLookupError, FileNotFoundError):
            if id_of(identity.pid) == identity:  # pids are reused here
                os.kill(identity.pid, signal.SIGKILL)


def id_of(pid: int) -> ProcessId:
    return ProcessId(pid, parse_stat((PROC / str(pid) / "stat").read_bytes()).start_ticks)


def ending(pid: int, ppid: int = 1, condition: Condition = Condition.ORPHAN) -> Ending:
    identity = id_of(pid)
    target = replace(process(pid, ppid=ppid), id=identity)
    return Ending(process=target, condition=condition, unit=None, gpu_bytes=None, because="")


def ended(endings: Sequence[Ending], **more: float) -> dict[int, Outcome]:
    seconds = {"terminate_seconds": 0.5, "kill_seconds": 0.5, "tracker_seconds": 0.5} | more
    found = list(end(endings, procfs=PROC, **seconds))  # type: ignore[arg-type]  # numbers all
    assert len(found) == len(endings)
    assert all(isinstance(outcome.step, Ending) for outcome in found)
    return {outcome.step.process.id.pid: outcome for outcome in found if isinstance(outcome.step, Ending)}


def counting(file: Path, delay: float) -> "subprocess.Popen[str]":
    found = subprocess.Popen(
        [sys.executable, "-c", COUNTS, str(file), str(delay)], stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert found.stdout is not None
    assert found.stdout.readline() == "ready\n"
    found.stdout.close()
    return found


def test_a_process_that_ends_at_sigterm_gets_it_once_and_has_its_time(tmp_path: Path) -> None:
    child = counting(tmp_path / "count", delay=0.3)
    outcome = ended([ending(child.pid)], terminate_seconds=5)[child.pid]
    assert (outcome.result, outcome.detail) == (Result.DONE, "after SIGTERM")
    assert 0.3 <= outcome.seconds < 4.5
    assert (tmp_path / "count").read_text() == "x"
    assert child.wait() == 0


def test_a_process_that_ignores_sigterm_gets_it_once_and_is_then_killed(tmp_path: Path) -> None:
    child = counting(tmp_path / "count", delay=-1)
    outcome = ended([ending(child.pid)])[child.pid]
    assert (outcome.result, outcome.detail) == (Result.DONE, "by SIGKILL")
    assert outcome.seconds >= 0.5
    assert (tmp_path / "count").read_text() == "x"
    assert child.wait() == -signal.SIGKILL


def test_children_get_a_signal_only_once_their_ancestors_have_ended(tmp_path: Path) -> None:
    """An engine sends SIGTERM to its workers itself; a second one would kill them amidst their clean-up."""
    core, worker = counting(tmp_path / "core", delay=0.4), counting(tmp_path / "worker", delay=0)
    outcomes = ended(
        [ending(worker.pid, ppid=core.pid), ending(core.pid)],  # the order of the plan does not matter here
        terminate_seconds=5,
    )
    assert list(outcomes) == [core.pid, worker.pid]
    assert outcomes[worker.pid].seconds >= 0.4
    assert [(tmp_path / name).read_text() for name in ("core", "worker")] == ["x", "x"]
    core.wait()
    worker.wait()


# Tells its child, ends, and its child is busy with its own clean-up for longer; between them is a shell.
CORE = """
import os, signal, subprocess, sys, time
child = subprocess.Popen(["sh", "-c", '"$@" & wait', "sh", sys.executable, "-c", *sys.argv[1:]], stdout=subprocess.PIPE)
pid = int(child.stdout.readline())
def told(*_):
    os.kill(pid, signal.SIGTERM); time.sleep(0.2); os._exit(0)
signal.signal(signal.SIGTERM, told)
print(pid, flush=True)
while True: signal.pause()
"""


def test_a_child_signalled_by_an_ended_parent_gets_none_for_a_while(tmp_path: Path, pids: list[ProcessId]) -> None:
    """A second SIGTERM would cut its clean-up short. The plan does not know of the shell between them."""
    counts = COUNTS.replace('"ready"', "os.getpid()")
    core = subprocess.Popen(
        [sys.executable, "-c", CORE, counts, str(tmp_path / "count"), "0.6"], stdout=subprocess.PIPE, text=True
    )
    pids.append(id_of(core.pid))
    assert core.stdout is not None
    worker = int(core.stdout.readline())
    pids.append(id_of(worker))
    core.stdout.close()
    shell = parse_stat((PROC / str(worker) / "stat").read_bytes()).ppid
    outcomes = ended([ending(worker, ppid=shell), ending(core.pid)], terminate_seconds=4)
    assert outcomes[core.pid].detail == "after SIGTERM"
    assert outcomes[worker].detail == "by itself, as what it belonged to had ended"
    assert (tmp_path / "count").read_text() == "x"
    core.wait()


def test_a_lone_survivor_gets_its_signal_after_a_while(tmp_path: Path) -> None:
    core, worker = counting(tmp_path / "core", delay=0), counting(tmp_path / "worker", delay=0)
    outcomes = ended([ending(core.pid), ending(worker.pid, ppid=core.pid)], terminate_seconds=2)
    assert outcomes[worker.pid].detail == "after SIGTERM"
    assert outcomes[worker.pid].seconds >= 0.5  # a quarter of what there is
    core.wait()
    worker.wait()


def test_what_proc_does_not_show_is_not_touched(tmp_path: Path) -> None:
    child = counting(tmp_path / "count", delay=0)
    (outcome,) = end([ending(child.pid)], procfs=tmp_path)
    assert (outcome.result, outcome.detail) == (Result.FAILED, "it cannot be identified: /proc does not show it")
    assert child.poll() is None
    child.kill()
    child.wait()


@pytest.mark.parametrize(
    ("call", "number", "what"),
    [
        ("os.pidfd_open", errno.ENOSYS, (Result.FAILED, "it cannot be identified: Function not implemented")),
        ("os.pidfd_open", errno.EMFILE, (Result.FAILED, "it cannot be identified: Too many open files")),
        ("signal.pidfd_send_signal", errno.ENOSYS, (Result.FAILED, "Function not implemented")),
        ("signal.pidfd_send_signal", errno.EPERM, (Result.DENIED, "we may not: it takes its user, or root")),
    ],
)
def test_what_the_kernel_does_not_let_us_end_is_a_failure_with_its_cause(
    call: str, number: int, what: tuple[Result, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    child = counting(tmp_path / "count", delay=0)

    def refuse(*_: object) -> None:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(call, refuse)
    step = ending(child.pid)
    (outcome,) = end([step], procfs=PROC)
    assert (outcome.result, outcome.detail) == what
    assert not CleanupReport(plan=Plan(endings=(step,)), outcomes=(outcome,)).complete
    assert child.poll() is None
    child.kill()
    child.wait()


TREE = """
import ctypes, os, signal, sys, time
ctypes.CDLL(None).prctl(36, 1, 0, 0, 0)  # PR_SET_CHILD_SUBREAPER
def lives(*change):
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    for one in change: one()
    os.write(1, b'%d\\n' % os.getpid())  # whole, with whatever buffering
    time.sleep(1000)
def double():
    if os.fork() == 0: lives(os.setsid)
    os._exit(0)
for change in (lives, lambda: lives(lambda: os.setpgid(0, 0)), double):
    if os.fork() == 0: change()
while True:
    try: os.wait()
    except ChildProcessError: time.sleep(0.01)
"""


def test_an_adopted_tree_that_ignores_sigterm_is_ended_and_its_adopter_is_not(
    pids: list[ProcessId],
) -> None:
    adopter = subprocess.Popen([sys.executable, "-c", TREE], stdout=subprocess.PIPE, text=True)
    pids.append(id_of(adopter.pid))
    assert adopter.stdout is not None
    workers = [int(adopter.stdout.readline()) for _ in range(3)]
    pids += map(id_of, workers)
    adopter.stdout.close()
    outcomes = ended([ending(pid, ppid=adopter.pid) for pid in workers])
    assert {outcome.detail for outcome in outcomes.values()} == {"by SIGKILL"}
    assert [_is_alive(pid) for pid in workers] == [False, False, False]
    assert adopter.poll() is None
    adopter.kill()
    adopter.wait()


def _is_alive(pid: int) -> bool:
    try:
        return parse_stat((PROC / str(pid) / "stat").read_bytes()).state not in "ZX"
    except (OSError, IndexError):
        return False


def test_an_ended_process_is_gone_and_a_zombie_counts_as_ended(tmp_path: Path) -> None:
    child = counting(tmp_path / "count", delay=0)
    step = ending(child.pid)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    assert ended([step])[child.pid].result in {Result.DONE, Result.GONE}  # a zombie
    child.wait()
    assert ended([step])[child.pid].result is Result.GONE


def in_which_a_pid_is_used_again(folder: Path) -> None:
    """Ask the kernel for the next pid (/proc/sys/kernel/ns_last_pid, root)."""
    first = counting(folder / "first", delay=0)
    step = ending(first.pid)
    time.sleep(0.02)  # start times are in ticks of 10 ms
    first.kill()
    first.wait()
    (PROC / "sys/kernel/ns_last_pid").write_text(str(first.pid - 1))
    second = counting(folder / "second", delay=0)
    assert second.pid == first.pid
    outcome = ended([step])[first.pid]
    assert (outcome.result, outcome.detail) == (Result.SPARED, f"pid {first.pid} is another process's by now")
    assert second.poll() is None
    assert not (folder / "second").exists()


def test_another_process_with_the_same_pid_is_not_touched(tmp_path: Path) -> None:
    """In a PID namespace of its own, where no other process takes the pid, and no other pid is used again."""
    needs_root()
    code = f"import pathlib, {__name__} as there; there.in_which_a_pid_is_used_again(pathlib.Path({str(tmp_path)!r}))"
    alone = (needs("unshare"), "--pid", "--fork", "--kill-child", "--mount-proc")
    done = subprocess.run([*alone, sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=60)
    assert done.returncode == 0, done.stderr


def test_what_does_not_die_is_reported_as_stuck(keep_from_dying: Callable[[int], Callable[[], None]]) -> None:
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
    let_die = keep_from_dying(child.pid)
    outcome = ended([ending(child.pid)])[child.pid]
    let_die()
    child.wait()
    assert outcome.result is Result.STUCK
    assert outcome.detail.startswith("SIGKILL does not end it, state ")
    assert outcome.detail.endswith("it takes a GPU reset or a reboot")


def test_no_other_process_gets_a_signal_once_it_is_interrupted(tmp_path: Path) -> None:
    core, worker = counting(tmp_path / "core", delay=-1), counting(tmp_path / "worker", delay=-1)
    steps = [ending(core.pid), ending(worker.pid, ppid=core.pid)]
    interrupted = iter([False, True])
    found = {
        outcome.step.process.id.pid: outcome.detail
        for outcome in end(steps, procfs=PROC, terminate_seconds=5, interrupted=lambda: next(interrupted, True))
        if isinstance(outcome.step, Ending)
    }
    assert found == {
        core.pid: "interrupted: it has been told to end, and has not yet",
        worker.pid: "interrupted before it was told to end",
    }
    for child in (core, worker):
        assert child.poll() is None
        child.kill()
        child.wait()
    assert not (tmp_path / "worker").exists()


CREATOR = """
import sys, time
from multiprocessing import resource_tracker, shared_memory
held = shared_memory.SharedMemory(create=True, size=4096)
print(held.name, resource_tracker._resource_tracker._pid, flush=True)
time.sleep(1000)
"""


@pytest.fixture
def creator(pids: list[ProcessId]) -> Iterator[tuple["subprocess.Popen[str]", Path, int]]:
    """Give a process with a file in shared memory and a resource tracker that knows of it."""
    found = subprocess.Popen([sys.executable, "-c", CREATOR], stdout=subprocess.PIPE, text=True)
    assert found.stdout is not None
    name, tracker = found.stdout.readline().split()
    found.stdout.close()
    pids.append(id_of(int(tracker)))
    path = Path("/dev/shm") / name
    yield found, path, int(tracker)
    found.kill()
    found.wait()
    path.unlink(missing_ok=True)


def test_a_tracker_ends_by_itself_having_removed_what_it_knows(
    creator: tuple["subprocess.Popen[str]", Path, int],
) -> None:
    owner, path, tracker = creator
    steps = [ending(owner.pid), ending(tracker, condition=Condition.TRACKER)]
    outcomes = ended(steps, tracker_seconds=10)
    assert outcomes[owner.pid].detail == "after SIGTERM"
    assert outcomes[tracker].detail == "by itself, as what it belonged to had ended"
    assert not path.exists()


def test_a_tracker_that_does_not_end_by_itself_is_killed_last(
    creator: tuple["subprocess.Popen[str]", Path, int],
) -> None:
    owner, path, tracker = creator
    os.kill(tracker, signal.SIGSTOP)
    outcomes = ended([ending(tracker, condition=Condition.TRACKER), ending(owner.pid)])
    assert list(outcomes) == [owner.pid, tracker]
    assert outcomes[tracker].detail == "by SIGKILL"
    assert path.exists()


def test_a_tracker_lives_while_one_of_the_others_does(
    creator: tuple["subprocess.Popen[str]", Path, int], keep_from_dying: Callable[[int], Callable[[], None]]
) -> None:
    owner, path, tracker = creator
    let_die = keep_from_dying(owner.pid)
    outcomes = ended([ending(owner.pid), ending(tracker, condition=Condition.TRACKER)])
    assert outcomes[owner.pid].result is Result.STUCK
    assert outcomes[tracker].detail == "a process that may hold its pipe lives"
    assert _is_alive(tracker)
    assert path.exists()
    let_die()


def test_another_users_process_is_not_ours_to_end(tmp_path: Path) -> None:
    needs_root()
    child = counting(tmp_path / "count", delay=0)
    step = ending(child.pid)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.setgroups([])
        os.setgid(65534)
        os.setuid(65534)
        (outcome,) = end([step], procfs=PROC)
        os.write(writing, f"{outcome.result}: {outcome.detail}".encode())
        os._exit(0)
    os.waitpid(pid, 0)
    assert os.read(reading, 100).decode() == "denied: we may not: it takes its user, or root"
    os.close(reading)
    os.close(writing)
    assert child.poll() is None
    child.kill()
    child.wait()


MANY = """
import os, time
for _ in range(300):
    pid = os.fork()
    if pid == 0: time.sleep(1000)
    print(pid, flush=True)
time.sleep(1000)
"""


def test_more_than_a_batch_is_ended(pids: list[ProcessId]) -> None:
    parent = subprocess.Popen([sys.executable, "-c", MANY], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(parent.stdout.readline()) for _ in range(300)]
    parent.stdout.close()
    pids += map(id_of, workers)
    before = len(list(Path("/proc/self/fd").iterdir()))
    outcomes = ended([ending(pid, ppid=parent.pid) for pid in workers])
    assert {outcome.result for outcome in outcomes.values()} == {Result.DONE}
    assert len(outcomes) == 300
    assert len(list(Path("/proc/self/fd").iterdir())) == before
    parent.kill()
    parent.wait()
