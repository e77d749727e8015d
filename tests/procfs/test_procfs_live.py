"""The process table of this machine, against real processes and against psutil."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pytest
from tests.fakes.needs import missing, needs, needs_root
from tests.fakes.other_users import NOBODY, open_path

from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Home, Process, ProcessTable, Role
from llmhost.sources.procfs import ProcfsSource, _Known

__all__ = ["open_path"]

EXPORTER = Path(__file__).parents[2] / "exporter"


def source() -> ProcfsSource:
    return ProcfsSource(procfs=Path("/proc"), trust_pid_namespace=True)


def table() -> ProcessTable:
    return source().read(time.monotonic() + 10)


@contextmanager
def running(code: str, *arguments: str | bytes) -> Iterator[tuple[int, str]]:
    """Run Python code that prints a line when it is ready; gives its pid and that line. It is killed at the end."""
    process = subprocess.Popen(
        [sys.executable, "-c", code, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, start_new_session=True
    )
    try:
        assert process.stdout is not None
        yield process.pid, process.stdout.readline().decode().strip()
    finally:
        process.kill()
        process.communicate()


SLEEP = "import sys; print(flush=True); sys.stdin.read()"
RENAME = "open('/proc/self/comm', 'wb').write({comm!r}); import sys; print(flush=True); sys.stdin.read()"
# What setproctitle does: write over the arguments in place, the rest of them with NULs; the first 15 bytes into comm.
TITLE = """
import ctypes, sys
title = sys.argv[1].encode()
stat = open('/proc/self/stat').read().rpartition(')')[2].split()
start, end = int(stat[45]), int(stat[46])  # fields 48 and 49: arg_start, arg_end
ctypes.memset(start, 0, end - start)
ctypes.memmove(start, title, len(title))
open('/proc/self/comm', 'wb').write(title[:15])
print(flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("comm", [b"a) R 1 (b", b"a\nb) S 0 0", b"\xff\xfe \xe2\x82", b"()", b" "])
def test_a_process_may_call_itself_anything(comm: bytes) -> None:
    with running(RENAME.format(comm=comm)) as (pid, _):
        process = table().by_pid[pid]
        assert process.comm == comm.decode("utf-8", "backslashreplace")
        assert (process.ppid, process.session, process.pgrp) == (os.getpid(), pid, pid)
        assert not process.kernel_thread
        assert process.uid == os.geteuid()


def test_arguments_that_are_no_text_are_given_as_text() -> None:
    with running(SLEEP, b"\xff\xfe", b"", b"a b\n", b"\xe2\x82\xac") as (pid, _):
        assert table().by_pid[pid].argv[3:] == ("\\xff\\xfe", "", "a b\n", "€")


@pytest.mark.parametrize(
    ("title", "role"),
    [("VLLM::EngineCore_DP11", Role.CORE), ("VLLM::Worker_TP7", Role.WORKER), ("VLLM::Worker ", Role.WORKER)],
)
def test_a_title_written_over_the_arguments_is_read_without_its_padding(title: str, role: Role) -> None:
    with running(TITLE, title, "filler" * 20) as (pid, _):
        process = table().by_pid[pid]
        assert process.argv == (title,)
        assert process.comm == title[:15]
        assert (process.engine, process.role) == ("vllm", role)


def test_a_zombie_has_no_arguments_and_keeps_its_name() -> None:
    with running("import os; open('/proc/self/comm', 'w').write('VLLM::EngineCor'); os._exit(0)") as (pid, _):
        os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
        process = table().by_pid[pid]
        assert (process.state, process.zombie, process.argv) == ("Z", True, ())
        assert (process.comm, process.engine, process.role) == ("VLLM::EngineCor", "vllm", Role.CORE)


def test_processes_that_come_and_go_during_the_read_disturb_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    live = source()
    read_process = live._process
    vanished = 0

    def counting(pid: int, before: _Known | None, *, due: bool) -> _Known:
        nonlocal vanished
        try:
            return read_process(pid, before, due=due)
        except OSError:
            vanished += 1
            raise

    monkeypatch.setattr(live, "_process", counting)
    loop = "while :; do for i in 1 2 3 4 5 6 7 8; do /bin/true & sleep 0.00$i & done; wait; done"
    churn = subprocess.Popen(["sh", "-c", loop], start_new_session=True)
    ids: set[ProcessId] = set()
    stop = time.monotonic() + 15
    try:
        while len(ids) < 20 or vanished < 5:
            now = live.read(stop)
            assert now.unreadable == 0
            ids.update(process.id for process in now.by_pid.values() if process.session == churn.pid)
    finally:
        os.killpg(churn.pid, signal.SIGKILL)
        churn.wait()


def _differences(process: Process) -> list[str]:
    """Compare with what psutil says, asked now."""
    other = psutil.Process(process.id.pid)
    with other.oneshot():
        start = other.create_time() - psutil.boot_time()
        cmdline = " ".join(other.cmdline())  # psutil splits titles at blanks, and keeps what is no UTF-8 as surrogates
        pairs = {
            "ppid": (process.ppid, other.ppid()),
            "start": (process.id.start_ticks, round(start * os.sysconf("SC_CLK_TCK"))),
            "uid": (process.uid, other.uids().effective),
            "zombie": (process.zombie, other.status() == psutil.STATUS_ZOMBIE),
            "cmdline": (
                " ".join(process.argv).rstrip(),
                os.fsencode(cmdline).decode("utf-8", "backslashreplace").rstrip(),
            ),
        }
    return [f"{name}: {ours!r}, {theirs!r}" for name, (ours, theirs) in pairs.items() if ours != theirs]


def test_psutil_agrees_on_every_process_that_lives_on() -> None:
    with running(SLEEP, "a", "", "b"), running(SLEEP, b"\xff"), running(TITLE, "VLLM::EngineCore", "filler"):
        agreed: set[int] = set()
        disagreed: list[dict[int, list[str]]] = []
        for _ in range(3):  # a process may change between the two looks, and others start
            found = {}
            for pid, process in table().by_pid.items():
                with suppress(psutil.NoSuchProcess):
                    found[pid] = _differences(process)
            agreed |= {pid for pid, differences in found.items() if not differences}
            disagreed.append({pid: differences for pid, differences in found.items() if differences})
        always = {
            pid: differences for pid, differences in disagreed[0].items() if all(pid in each for each in disagreed)
        }
        assert always == {}
        assert agreed >= {1, os.getpid(), os.getppid()}


def _cgroup2() -> Path:
    for line in Path("/proc/self/mounts").read_text().splitlines():
        fields = line.split()
        if fields[2] == "cgroup2" and os.access(fields[1], os.W_OK):
            return Path(fields[1])
    missing("a writable cgroup2")
    raise AssertionError


def test_a_real_move_between_cgroups_is_seen() -> None:
    needs_root()
    top = _cgroup2() / f"llmhosttest{os.getpid()}.slice"
    first, second = top / "vllm@a.service", top / "session-c1.scope"
    home = _cgroup2() / Path("/proc/self/cgroup").read_text().rpartition("0::/")[2].strip()
    with running(TITLE, "VLLM::EngineCore", "filler") as (pid, _):
        live = source()
        try:
            for directory, expected in ((first, (Home.SERVICE, "vllm@a.service")), (second, (Home.SESSION, ""))):
                directory.mkdir(parents=True)
                (directory / "cgroup.procs").write_text(str(pid))
                placement = live.read(time.monotonic() + 10).by_pid[pid].placement
                assert (placement.home, placement.unit.name if placement.unit else "") == expected
                assert placement.unit is None or placement.unit == UnitId("vllm@a.service")
        finally:
            (home / "cgroup.procs").write_text(str(pid))
            for directory in (first, second, top):
                if directory.exists():
                    directory.rmdir()


ELSEWHERE = """
import json, os, sys, time
from pathlib import Path
from llmhost.sources.base import SourceError
from llmhost.sources.procfs import ProcfsSource, _Known
procfs, trust, user = Path(sys.argv[1]), sys.argv[2] == "True", int(sys.argv[3])
if user:  # only now: an interpreter in root's home is not for others to start
    os.setgroups([])
    os.setgid(user)
    os.setuid(user)
try:
    table = ProcfsSource(procfs=procfs, trust_pid_namespace=trust).read(time.monotonic() + 10)
    print(json.dumps([len(table.by_pid), table.unreadable, {p: [q.uid, *q.argv[:1]] for p, q in table.by_pid.items()}]))
except SourceError as error:
    print(json.dumps([error.cause, error.detail]))
"""


def elsewhere(*command: str, procfs: str = "/proc", trust: bool = True, user: int = 0) -> list[object]:
    """Ask a source that another command starts, or that another user is."""
    run = subprocess.run(
        [*command, sys.executable, "-c", ELSEWHERE, procfs, str(trust), str(user)],
        env={"PYTHONPATH": str(EXPORTER), "PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
        timeout=120,
    )
    answer: list[object] = json.loads(run.stdout)
    return answer


def test_without_privilege_every_process_is_read_as_with_it() -> None:
    needs_root()
    with running(SLEEP, "secret") as (pid, _):
        count, unreadable, processes = elsewhere(user=NOBODY)
        assert isinstance(count, int)
        assert count > 3
        assert unreadable == 0
        assert isinstance(processes, dict)
        assert processes[str(pid)] == [0, sys.executable]


def _unprivileged_with(options: str, mount_point: Path) -> list[object]:
    """Ask a source that runs as nobody with a procfs of its own, mounted with options (own ones since Linux 5.8)."""
    needs_root()
    mount = f'mount --make-rprivate / && mount -t proc -o {options} proc {mount_point} && exec "$@"'
    return elsewhere(needs("unshare"), "--mount", "sh", "-c", mount, "sh", procfs=str(mount_point), user=NOBODY)


@pytest.mark.parametrize(("option", "how"), [("hidepid=2", "is not listed"), ("hidepid=1", "cannot be read")])
def test_where_the_processes_of_others_are_hidden_there_is_no_table(open_path: Path, option: str, how: str) -> None:
    cause, detail = _unprivileged_with(option, open_path)
    assert cause == "no_permission"
    assert isinstance(detail, str)
    assert how in detail
    assert "hidepid" in detail


def test_the_group_that_hidepid_excepts_sees_everything(open_path: Path) -> None:
    count, unreadable, _ = _unprivileged_with(f"hidepid=2,gid={NOBODY}", open_path)
    assert isinstance(count, int)
    assert count > 3
    assert unreadable == 0


def test_a_pid_namespace_of_our_own_is_refused_unless_trusted() -> None:
    needs_root()
    command = (needs("unshare"), "--pid", "--fork", "--mount-proc")
    cause, detail = elsewhere(*command, trust=False)
    assert cause == "pid_namespace"
    assert isinstance(detail, str)
    assert "pid:[" in detail
    assert "host.pid_namespace" in detail
    count, unreadable, processes = elsewhere(*command, trust=True)
    assert (count, unreadable) == (1, 0)
    assert isinstance(processes, dict)
    assert list(processes) == ["1"]


def test_nothing_stays_open_between_reads() -> None:
    live = source()
    live.read(float("inf"))
    before = set(os.listdir("/proc/self/fd"))  # noqa: PTH208
    live.read(float("inf"))
    assert set(os.listdir("/proc/self/fd")) == before  # noqa: PTH208
