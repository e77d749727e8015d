"""`llmhost guard --reap` on a real systemd: what an ended run has left is ended, and nothing else."""

import json
import os
import re
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from tests.fakes import left_behind
from tests.fakes.booted import booted_systemd
from tests.fakes.unkillable import keep_from_dying
from tests.guard.test_on_systemd import Host, host

from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.state.history_file import HistoryFile

__all__ = ["booted_systemd", "host", "keep_from_dying"]

PROGRAM = Path(left_behind.__file__)
PARTS = {"worker", "mover", "daemon", "reaper", "adopted", "tracker"}
# What a first start makes is left when its main process is killed; a later one runs nothing but sleep.
LEAVES = """
KillMode=process
ExecStart=
ExecStart=/bin/sh -c 'test -e /run/{name}.json || exec {python} -B {program} /run/{name}.json; exec sleep 1000'
"""


class Tree:
    """Processes and files of the first run of a unit, by name."""

    def __init__(self, host: Host, name: str) -> None:
        self._host = host
        self.name = name
        made: dict[str, object] = json.loads(content_of(host, f"/run/{name}.json"))
        self.segment = str(made.pop("segment"))
        self.pids = {name: int(str(pid)) for name, pid in made.items()}

    def living(self) -> set[str]:
        """Give the processes that have not ended, by name; a zombie has."""
        states = {
            name: self._host.booted.run(["ps", "-o", "state=", "-p", str(pid)], check=False).stdout.strip()
            for name, pid in self.pids.items()
        }
        return {name for name, state in states.items() if state not in {"", "Z"}}

    def has_segment(self) -> bool:
        return self._host.booted.run(["test", "-e", self.segment], check=False).returncode == 0


def content_of(host: Host, path: str) -> str:
    """Read a file in there that is about to be written."""
    until = time.monotonic() + 120
    while not (found := host.booted.run(["cat", path], check=False).stdout):
        assert time.monotonic() < until, f"no {path}"
        time.sleep(0.02)
    return found


def leaving(host: Host, name: str, options: str = "--reap", more: str = "") -> Tree:
    """Run a unit whose main process is killed, and which leaves all the rest."""
    leaves = LEAVES.format(name=name, python=sys.executable, program=PROGRAM)
    host.unit(name, "0", options=options, more=leaves + more)
    host.start(name)
    tree = Tree(host, name)
    assert tree.living() == PARTS
    host.booted.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", f"{name}.service")
    host.becomes(name, "failed")
    assert tree.living() == PARTS
    return tree


@pytest.fixture
def neighbour(host: Host) -> Iterator[Tree]:
    """Another service, which runs."""
    leaves = LEAVES.format(name="vllm-b", python=sys.executable, program=PROGRAM)
    host.unit("vllm-b", "7", more=leaves.replace("KillMode=process", ""), prefix="-+/nonexistent/llmhost guard ")
    host.start("vllm-b")
    yield Tree(host, "vllm-b")
    host.booted.systemctl("kill", "--signal=SIGKILL", "vllm-b.service")


@pytest.fixture(autouse=True)
def without_trees(host: Host) -> Iterator[None]:
    host.booted.run(["sh", "-c", "rm -f /run/*.json"])
    yield
    for unit in ("vllm-a", "vllm-b"):
        host.booted.systemctl("kill", "--signal=SIGKILL", f"{unit}.service", check=False)


def test_what_an_ended_run_has_left_is_ended_and_the_service_starts(host: Host, neighbour: Tree) -> None:
    tree = leaving(host, "vllm-a")
    host.use({0: "80G"}, f"proc 0 {tree.pids['adopted']} mem=79G")
    started_at = host.start("vllm-a")
    host.says("vllm-a", r"ended leftover \d+ \S+, of an ended run: by SIGKILL", seconds=60)
    until = time.monotonic() + 120
    while tree.living():
        assert time.monotonic() < until, tree.living()
        time.sleep(0.05)
    assert not tree.has_segment(), "its tracker has ended last, and by itself"
    host.use({0: "600M"})
    running_at = host.becomes("vllm-a", "running", 60)
    assert running_at - started_at >= 10, "they had 10 s from SIGTERM on"
    log = host.log("vllm-a")
    for name in PARTS - {"tracker"}:
        assert f"ended leftover {tree.pids[name]} " in log
    assert f"ended tracker {tree.pids['tracker']} " in log
    assert log.count("vllm-a.service: ended ") == len(PARTS), log
    assert neighbour.living() == PARTS
    assert neighbour.has_segment()


def test_a_free_start_is_held_back_until_they_have_ended(host: Host) -> None:
    host.booted.run(["rm", "-f", "/run/left.pid"])
    leaves = "/bin/sh -c 'test -e /run/left.pid || { sleep 1000 & echo $$! >/run/left.pid; }; exec sleep 1001'"
    more = f"KillMode=process\nExecStart=\nExecStart={leaves}\n"
    host.unit("vllm-a", "0", options="--reap --settle 0s", more=more)
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    sleeps = 'until grep -qx sleep /proc/"$(cat /run/left.pid)"/comm; do sleep 0.05; done 2>&-'
    host.booted.run(["timeout", "30", "sh", "-c", sleeps])
    host.booted.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "vllm-a.service")
    host.becomes("vllm-a", "failed")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    log = host.log("vllm-a")
    found = re.search(r"ended leftover (\d+) sleep, of an ended run: after SIGTERM", log)
    assert found, log
    ended = found[1]
    assert host.booted.run(["kill", "-0", ended], check=False).returncode == 1


def test_one_that_does_not_die_is_named_in_the_last_line(
    host: Host, keep_from_dying: Callable[[int], Callable[[], None]]
) -> None:
    leaves = "/bin/sh -c 'sleep 1000 & echo $! >/run/a.pid; exec sleep 1001'"
    more = f"KillMode=process\nExecStart=\nExecStart={leaves}\n"
    host.unit("vllm-a", "0", options="--reap", more=more)
    host.start("vllm-a")
    pid = content_of(host, "/run/a.pid").strip()
    host.booted.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "vllm-a.service")
    host.becomes("vllm-a", "failed")
    let_die = keep_from_dying(pid_here(host, int(pid)))
    host.use({0: "80G"}, f"proc 0 {pid} mem=79G")
    host.start("vllm-a")
    stuck = rf"ERROR .*could not end leftover {pid} sleep, of an ended run: SIGKILL does not end it, state \S"
    host.says("vllm-a", stuck, seconds=60)
    last = rf"; process {pid} sleep of an ended run does not die, and only a GPU reset or a reboot ends it"
    host.says("vllm-a", rf"waits for GPU 0 .*{last}")
    host.booted.systemctl("stop", "vllm-a.service")
    host.says("vllm-a", rf"ended by SIGTERM after .*: it waited for GPU 0 .*{last}")
    let_die()


def pid_here(host: Host, pid: int) -> int:
    """Give the pid that a process in there has out here (proc(5): /proc/PID/status, NSpid)."""
    for status in Path("/proc").glob("[0-9]*/status"):
        with suppress(OSError):
            namespaces = re.search(r"^NSpid:\s+(\d+)\s.*\b(\d+)$", status.read_text(), re.MULTILINE)
            if (
                namespaces
                and int(namespaces[2]) == pid
                and os.path.samefile(  # noqa: PTH121
                    f"/proc/{namespaces[1]}/ns/pid", f"/proc/{host.booted.pid}/ns/pid"
                )
            ):
                return int(namespaces[1])
    raise LookupError(pid)


def test_without_it_all_stay(host: Host) -> None:
    tree = leaving(host, "vllm-a", options="")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert tree.living() == PARTS


SERVES = """
import os, socket, sys, time
if not os.path.exists("/run/served") and os.fork() == 0:
    os.setsid()
    listening = {listening}
    child = os.fork()
    if child:
        open("/run/served", "w").write(f"{{os.getpid()}} {{child}}")
    else:
        listening.close()
time.sleep(1000)
"""
LISTENING = {
    "tcp": 'socket.create_server(("127.0.0.1", 0))',
    # as the daemon of MPS, or of a cache, that serves another unit
    "unix": 'socket.socket(socket.AF_UNIX); listening.bind("/run/control"); listening.listen()',
    "abstract": 'socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET); listening.bind("\\0own"); listening.listen()',
}


@pytest.mark.parametrize("listening", LISTENING.values(), ids=LISTENING)
def test_what_still_listens_and_what_works_for_it_stays(host: Host, listening: str) -> None:
    host.booted.run(["rm", "-f", "/run/served", "/run/control"])
    host.booted.write("/opt/test/serves.py", SERVES.format(listening=listening))
    serves = f"KillMode=process\nExecStart=\nExecStart={sys.executable} /opt/test/serves.py\n"
    host.unit("vllm-a", "0", options="--reap", more=serves)
    host.start("vllm-a")
    server, child = content_of(host, "/run/served").split()
    host.booted.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "vllm-a.service")
    host.becomes("vllm-a", "failed")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    log = host.log("vllm-a")
    assert re.search(rf"leaves {server} \S+ alone: still listens, and may serve somebody", log)
    assert re.search(rf"leaves {child} \S+ alone: ending it would take down {server} \S+, which stays", log)
    host.booted.run(["kill", "-0", server, child])


# Each forks short children for ever; the last one also takes no SIGTERM, and makes a grandchild that it lets go.
LOOPS = """#!/bin/sh
test -e /run/loops && exec sleep 1001
for number in 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15; do (while :; do sleep 0.4; done) & done
(trap "" TERM; while :; do (sleep 30 & ) ; sleep 0.4; done) &
touch /run/loops
exec sleep 1001
"""


def test_loops_that_fork_short_children_are_ended_with_all_that_they_make_meanwhile(host: Host) -> None:
    host.booted.run(["rm", "-f", "/run/loops"])
    host.booted.write("/opt/test/loops", LOOPS)
    host.unit("vllm-a", "0", "--reap", more="KillMode=process\nExecStart=\nExecStart=/bin/sh /opt/test/loops\n")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    host.booted.run(["timeout", "30", "sh", "-c", "until test -e /run/loops; do sleep 0.05; done"])
    host.booted.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "vllm-a.service")
    host.becomes("vllm-a", "failed")
    host.start("vllm-a")
    host.becomes("vllm-a", "running", 60)
    log = host.log("vllm-a")
    assert "which stays" not in log
    assert len(re.findall(r"ended leftover \d+ sh, of an ended run", log)) == 16, log
    cgroup = host.booted.show("vllm-a.service", "ControlGroup")["ControlGroup"]
    main = host.booted.show("vllm-a.service", "MainPID")["MainPID"]
    assert host.booted.run(["cat", f"/sys/fs/cgroup{cgroup}/cgroup.procs"]).stdout.split() == [main]


def test_what_the_present_start_has_sent_to_the_background_stays_and_that_of_the_start_before_is_ended(
    host: Host,
) -> None:
    host.booted.run(["sh", "-c", "rm -f /run/background.pids"])
    background = "ExecStartPre=/bin/sh -c 'setsid sleep 1000 & echo $$! >>/run/background.pids'\n"
    guard = f"{sys.executable} -m llmhost guard --config /etc/llmhost-guard.yml --reap"
    more = f"KillMode=process\nExecStartPre=\n{background}ExecStartPre=+{guard}\n"
    host.unit("vllm-a", "0", more=more)
    for _ in range(2):
        host.start("vllm-a")
        host.becomes("vllm-a", "running")
        host.booted.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "vllm-a.service")
        host.becomes("vllm-a", "failed")
    before, present = content_of(host, "/run/background.pids").split()
    assert re.findall(r"ended leftover (\d+) sleep, of an ended run", host.log("vllm-a")) == [before]
    host.booted.run(["kill", "-0", present])
    assert host.booted.run(["kill", "-0", before], check=False).returncode == 1


@pytest.mark.parametrize(("scope", "stays"), [("batch-job", True), ("session-7", False)])
def test_a_job_that_has_moved_into_a_scope_of_its_own_stays_but_not_into_a_session(
    host: Host, scope: str, stays: bool
) -> None:
    """The exporter has seen it in the unit before."""
    job = f"systemd-run --quiet --scope --unit={scope} sh -c 'echo $$$$ >/run/job.pid; exec sleep 1000'"
    host.booted.run(["rm", "-rf", "/run/job.pid", "/var/lib/llmhost"])
    host.booted.write("/opt/test/job", f"test -e /run/job.pid || {job.replace('$$$$', '$$')} & exec sleep 1001\n")
    host.unit("vllm-a", "0", "--reap", more="KillMode=process\nExecStart=\nExecStart=/bin/sh /opt/test/job\n")
    host.start("vllm-a")
    pid = content_of(host, "/run/job.pid").strip()
    started = host.booted.run(["cut", "-d", " ", "-f", "22", f"/proc/{pid}/stat"]).stdout
    run = RunId(
        unit=UnitId("vllm-a.service"), invocation_id=host.booted.show("vllm-a.service", "InvocationID")["InvocationID"]
    )
    host.booted.run(["mkdir", "-p", "/var/lib/llmhost"])
    store = HistoryFile(host.booted.root / "var/lib/llmhost")
    boot_id = host.booted.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()
    store.save(
        History(boot_id=boot_id, process_runs={ProcessId(int(pid), int(started)): run}, processes_at=1.0), durable=False
    )
    store.close()
    host.booted.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "vllm-a.service")
    host.becomes("vllm-a", "failed")
    host.start("vllm-a")
    if stays:
        host.says("vllm-a", rf"leaves {pid} sleep alone: lives in {scope}\.scope by now")
    else:
        host.says("vllm-a", rf"ended leftover {pid} sleep, of an ended run")
    host.becomes("vllm-a", "running")
    assert host.booted.run(["kill", "-0", pid], check=False).returncode == (0 if stays else 1)
    host.booted.systemctl("stop", f"{scope}.scope", check=False)
    host.booted.run(["rm", "-rf", "/var/lib/llmhost"])


def test_a_stop_amidst_it_ends_the_guard_at_once(host: Host) -> None:
    tree = leaving(host, "vllm-a")
    host.start("vllm-a")
    host.says("vllm-a", r"waits for what ended runs have left to be gone \(enough is free\)")
    stopping_at = time.monotonic()
    host.booted.systemctl("stop", "vllm-a.service")
    assert time.monotonic() - stopping_at < 5, "and not the ten seconds"
    host.says("vllm-a", "ended by SIGTERM after .*: it waited for what ended runs have left to be gone")
    assert "interrupted: it has been told to end, and has not yet" in host.log("vllm-a")
    assert tree.living() == PARTS


def test_outside_of_a_start_nothing_is_ended(host: Host) -> None:
    tree = leaving(host, "vllm-a")
    guard = [sys.executable, "-m", "llmhost", "guard", "--unit", "vllm-a", "--config", "/etc/llmhost-guard.yml"]
    environment = ["LD_LIBRARY_PATH=/opt/nvml", "FAKE_NVML_STATE=/opt/nvml/state"]
    done = host.booted.run(["env", "-C", os.getcwd(), *environment, *guard, "--reap"], check=False)  # noqa: PTH109
    assert done.returncode == 0
    assert "--reap and --clean-shm do nothing: this runs in no service's start" in done.stderr
    assert tree.living() == PARTS
