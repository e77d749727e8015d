"""`llmhost guard --clean-shm` on a real systemd: of the files in shared memory, the stale ones of the unit's own go."""

import json
import re
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.booted import booted_systemd
from tests.fakes.hung_mount import HungMount
from tests.fakes.inside import ExporterInside, NvmlInside, of
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]

CONFIG = """
host: {pid_namespace: trust}
units: {patterns: ['vllm*.service'], discover: false}
policy: {segment_grace: 1500ms}
"""
# Makes files as Python's multiprocessing does, and one of a name that nobody knows; a second run makes nothing.
HOLDS = """
import json, multiprocessing, os, sys, time
from multiprocessing.shared_memory import SharedMemory
told = f"/run/{sys.argv[1]}.files"
if not os.path.exists(told):
    segment = SharedMemory(create=True, size=4096)
    lock = multiprocessing.get_context("spawn").Lock()
    unknown = open(f"/dev/shm/{sys.argv[1]}-unknown", "w")
    names = {"segment": segment.name, "semaphore": f"sem.{lock._semlock.name[1:]}", "unknown": f"{sys.argv[1]}-unknown"}
    with open(f"{told}.new", "w") as file: json.dump(names, file)
    os.rename(f"{told}.new", told)
time.sleep(1000)
"""


class Shm:
    def __init__(self, host: Host) -> None:
        self._host = host

    def made_by(self, name: str, options: str = "", more: str = "", prefix: str = "+") -> dict[str, str]:
        """Start a unit that makes files, on a GPU of its own; give their names by what they are."""
        program = f"ExecStart=\nExecStart={sys.executable} /opt/test/holds.py {name}\n"
        self._host.unit(name, str("abc".index(name[-1])), options=options, prefix=prefix, more=program + more)
        self._host.start(name)
        until = time.monotonic() + 120
        while not (found := self._host.booted.run(["cat", f"/run/{name}.files"], check=False).stdout):
            assert time.monotonic() < until, self._host.log(name)
            time.sleep(0.02)
        files: dict[str, str] = json.loads(found)
        return files

    def kill(self, name: str, all_but: str = "") -> None:
        """End a unit with all that it has, resource trackers too: nothing is cleaned up."""
        cgroup = self._host.booted.show(f"{name}.service", "ControlGroup")["ControlGroup"]
        # A tracker that outlives its owner by a moment would remove what it knows. So all are stopped first; and as
        # systemd lets them go on once the first one, the owner, has ended, that one is killed last.
        kill = """
            for pid in $(cat "$1/cgroup.procs"); do grep -qx "$2" /proc/$pid/comm || pids="$pid $pids"; done
            kill -STOP $pids
            kill -KILL $pids
        """
        self._host.booted.run(["sh", "-c", kill, "sh", f"/sys/fs/cgroup{cgroup}", all_but])
        self._host.becomes(name, "failed")

    def names(self) -> set[str]:
        return set(self._host.booted.run(["ls", "/dev/shm"]).stdout.split())


@pytest.fixture
def shm(host: Host) -> Iterator[Shm]:
    host.booted.run(["sh", "-c", "rm -rf /run/*.files /dev/shm/* /var/lib/llmhost"])
    host.booted.write("/opt/test/holds.py", HOLDS)
    host.booted.write("/etc/llmhost-guard.yml", CONFIG)
    yield Shm(host)
    host.booted.systemctl("stop", "vllm-*.service")
    host.booted.run(["sh", "-c", "rm -rf /dev/shm/* /var/lib/llmhost"])


SLEEPS = "/bin/sleep 1001"
NEIGHBOUR = "-+/nonexistent/llmhost guard "


def sees(exporter: ExporterInside, stale: int) -> None:
    """Have the exporter observe until so many files of known kinds are stale."""
    until = time.monotonic() + 120
    while True:
        found = of(exporter.series()["llmhost_shm_segments"], state="stale")
        count = sum(int(value) for (kind,), value in found.items() if kind != "other")
        if count == stale:
            return
        assert time.monotonic() < until, (
            f"{count} are stale, and not {stale}: {exporter.series()['llmhost_shm_segments']}"
        )
        time.sleep(0.1)


def test_stale_files_of_the_units_own_go_and_all_others_stay(host: Host, shm: Shm) -> None:
    """Beside it a service that lives, and one that has left as much behind."""
    with ExporterInside(host.booted, NvmlInside(host.booted), config=CONFIG) as exporter:
        own, living, stale = shm.made_by("vllm-a"), shm.made_by("vllm-b", prefix=NEIGHBOUR), shm.made_by("vllm-c")
        exporter.knows("vllm-a.service", "vllm-b.service", "vllm-c.service")
        exporter.series()
        shm.kill("vllm-a")
        shm.kill("vllm-c")
        sees(exporter, stale=4)
    host.booted.run(["touch", "/dev/shm/psm_00000001"])  # nobody's, and nobody was seen to hold it
    assert set(own.values()) <= shm.names()
    host.unit("vllm-a", "0", options="--clean-shm")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    removed = {own["segment"], own["semaphore"]}
    assert shm.names() == {own["unknown"], *living.values(), *stale.values(), "psm_00000001"}
    log = host.log("vllm-a")
    assert f"removed {own['segment']} from shared memory (python_shm, stale, and of an ended run)" in log
    assert f"removed {own['semaphore']} from shared memory (semaphore, stale, and of an ended run)" in log
    assert len(re.findall(r": removed ", log)) == len(removed)
    assert "no history" not in log


def test_while_a_process_of_an_ended_run_lives_they_stay_and_after_it_is_reaped_they_go(host: Host, shm: Shm) -> None:
    """It holds none of them, and might come for one by its name."""
    with ExporterInside(host.booted, NvmlInside(host.booted), config=CONFIG) as exporter:
        files = shm.made_by("vllm-a", more="KillMode=process\nExecStartPost=/bin/sh -c 'sleep 1000 &'\n")
        exporter.knows("vllm-a.service")
        exporter.series()
        shm.kill("vllm-a", all_but="sleep")
        sees(exporter, stale=2)
    host.unit("vllm-a", "0", options="--clean-shm", more=f"KillMode=process\nExecStart=\nExecStart={SLEEPS}\n")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert set(files.values()) <= shm.names()
    assert re.search(r"stale files stay, 2 of them: \d+ sleep lives, and may come for them", host.log("vllm-a"))
    host.booted.systemctl("stop", "vllm-a.service")
    host.unit("vllm-a", "0", options="--clean-shm --reap")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert shm.names() == {files["unknown"]}
    assert re.search(r"ended leftover \d+ sleep, of an ended run: after SIGTERM.*\n.* removed ", host.log("vllm-a"))


# Sets back by an hour what the exporter has noted of the clock: to the guard, it was set forward just now.
STEPS = """
import json
path = "/var/lib/llmhost/history.json"
with open(path) as file: document = json.load(file)
for offset in document["history"]["clock_offsets"][-2:]: offset["seconds"] -= 3600
with open(path, "w") as file: json.dump(document, file)
"""


def test_what_was_seen_left_before_this_start_goes_though_the_clock_was_set_since(host: Host, shm: Shm) -> None:
    with ExporterInside(host.booted, NvmlInside(host.booted), config=CONFIG) as exporter:
        files = shm.made_by("vllm-a")
        exporter.knows("vllm-a.service")
        exporter.series()
        shm.kill("vllm-a")
        sees(exporter, stale=2)
    host.booted.run([sys.executable, "-c", STEPS])
    host.unit("vllm-a", "0", options="--clean-shm")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert set(files.values()) & shm.names() == {files["unknown"]}, host.log("vllm-a")


def test_without_history_nothing_goes(host: Host, shm: Shm) -> None:
    files = shm.made_by("vllm-a", options="--clean-shm")
    shm.kill("vllm-a")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert set(files.values()) <= shm.names()
    assert "no history of this boot: no file of shared memory can be told to be stale" in host.log("vllm-a")


def test_a_config_and_a_history_that_come_late_still_count(host: Host, shm: Shm) -> None:
    """Without this config nothing is known of processes in here, and without the history nothing of files."""
    with ExporterInside(host.booted, NvmlInside(host.booted), config=CONFIG) as exporter:
        own = shm.made_by("vllm-a")
        exporter.knows("vllm-a.service")
        exporter.series()
        shm.kill("vllm-a")
        sees(exporter, stale=2)
    host.booted.run(["mkdir", "/run/late"])
    host.booted.write("/var/lib/llmhost/llmhost.yml", CONFIG)
    late = "--config /run/late/below/llmhost.yml --state-dir /run/late/below"
    host.unit("vllm-a", "0", options=f"--clean-shm {late}")
    prefix = ("nsenter", "-t", str(host.booted.pid), "-a")
    with HungMount(Path("/run/late"), late=Path(ExporterInside.STATE), prefix=prefix):
        host.start("vllm-a")
        host.says("vllm-a", "ERROR the config does not answer: /run/late/below/llmhost.yml: it is done without")
        host.says("vllm-a", "WARNING there is no history: /run/late/below does not answer")
        host.says("vllm-a", r"waits to see what ended runs have left \(enough is free\).*; ([6-9]|1\d) s of")
    host.becomes("vllm-a", "running")
    host.booted.run(["umount", "--lazy", "/run/late/below", "/run/late"])
    assert "the config has been read after" in host.log("vllm-a")
    assert "the history has been read after" in host.log("vllm-a")
    assert shm.names() & set(own.values()) == {own["unknown"]}
