"""Holders of the memory that a unit waits for, and processes that are no concern of it, on a real systemd."""

import re
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.unkillable import keep_from_dying
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host", "keep_from_dying"]

DOCKER, LIBPOD = f"docker-{'a1' * 32}.scope", f"libpod-{'b2' * 32}.scope"
BROKEN = "ExecStartPre=\nExecStartPre={prefix}{python} guard"


@contextmanager
def scope(booted: Booted, name: str, slice_: str) -> Iterator[int]:
    """Run a process in a scope of this name; give its pid in there."""
    run = f"systemd-run --scope --quiet --unit={name} --slice={slice_} sleep 1000 >/dev/null 2>&1 </dev/null &"
    booted.run(["sh", "-c", run])
    until = time.monotonic() + 120
    while not (group := booted.show(name, "ControlGroup").get("ControlGroup", "")):
        assert time.monotonic() < until, f"no {name}"
    (pid,) = booted.run(["cat", f"/sys/fs/cgroup{group}/cgroup.procs"]).stdout.split()
    try:
        yield int(pid)
    finally:
        booted.systemctl("stop", name, check=False)


@contextmanager
def moving(host: Host, gpus: range) -> Iterator[None]:
    """Have the memory of these GPUs rise from second to second, as where a model is loaded."""
    ends = threading.Event()

    def load() -> None:
        used_mib = 600
        while not ends.wait(0.1):
            used_mib += 200
            host.use(dict.fromkeys(gpus, f"{used_mib}M"))

    thread = threading.Thread(target=load)
    thread.start()
    try:
        yield
    finally:
        ends.set()
        thread.join()


def pid_outside(booted: Booted, pid: int) -> int:
    """Say which pid a process of the booted system has here."""
    namespace = Path(f"/proc/{booted.pid}/ns/pid").readlink()
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            found = re.search(r"^NSpid:.*\t(\d+)$", status.read_text(), re.MULTILINE)
            if found is not None and int(found[1]) == pid and (status.parent / "ns/pid").readlink() == namespace:
                return int(status.parent.name)
        except OSError:  # it has ended
            continue
    raise AssertionError(f"no process {pid} in there")


def last_line(host: Host, name: str) -> str:
    return host.log(name).splitlines()[-1]


def test_a_persons_process_and_containers_are_named_as_what_they_are(host: Host) -> None:
    with (
        scope(host.booted, "session-7.scope", "user-1000.slice") as person,
        scope(host.booted, DOCKER, "system.slice") as docker,
        scope(host.booted, LIBPOD, "machine.slice") as libpod,
    ):
        holders = {"vllm-a": person, "vllm-b": docker, "vllm-c": libpod}
        host.use(
            dict.fromkeys(range(3), "80G"), *(f"proc {gpu} {pid} mem=79G" for gpu, pid in enumerate(holders.values()))
        )
        for gpu, name in enumerate(holders):
            host.unit(name, str(gpu), options="--timeout 8s")
        host.start(*holders)
        for name, kind in (("vllm-a", "session"), ("vllm-b", "container"), ("vllm-c", "container")):
            host.becomes(name, "failed")
            who = rf"79\.0 GiB sleep pid {holders[name]} \({kind}, since [0-9:]+\), 1\.0 GiB with no visible owner"
            host.says(name, rf" waits for GPU [0-2] \(15\.0 of 85\.5 GiB free\): {who}")
            last = last_line(host, name)
            assert re.search(rf"held after \d+\.\d s \(--timeout\): .*{who}", last)
            assert last.endswith(f"Next step: end process {holders[name]}, or give this unit other GPUs")


def test_of_eight_gpus_the_busy_one_alone_is_waited_for(host: Host) -> None:
    host.use({6: "80G"})
    host.unit("vllm-a", ",".join(map(str, range(8))))
    host.start("vllm-a")
    line = host.says("vllm-a", r"vllm-a\.service waits for (.* with .*); \d+ s of 85 s\n")[1]
    assert line == "GPU 6 (15.0 of 85.5 GiB free): 80.0 GiB with no visible owner"
    host.use({6: "0"})
    host.becomes("vllm-a", "running")
    assert "85.5 GiB or more free on GPUs 0, 1, 2, 3, 4, 5, 6, 7, steady" in last_line(host, "vllm-a")


def test_two_units_that_boot_at_once_on_gpus_of_their_own_do_not_wait_for_each_other(host: Host) -> None:
    """Nor for what the other loads: that moves, but on other GPUs."""
    host.unit("vllm-a", "0,1,2,3")
    host.unit("vllm-b", "4,5,6,7")
    host.booted.write_unit("fleet.target", "[Unit]\nWants=vllm-a.service vllm-b.service\n")
    host.booted.systemctl("daemon-reload")
    host.booted.systemctl("start", "--no-block", "fleet.target")
    for name in ("vllm-a", "vllm-b"):
        host.becomes(name, "running")
        assert re.search(r"free after \d+\.\d s", last_line(host, name))
    with moving(host, range(4)):
        host.booted.systemctl("restart", "--no-block", "vllm-a.service", "vllm-b.service")
        host.says("vllm-a", "waits for memory to stand still on GPUs 0, 1, 2, 3")
        host.says(
            "vllm-b", r"free after \d+\.\d s(?s:.*)free after \d+\.\d s: 85\.5 GiB or more free on GPUs 4, 5, 6, 7"
        )
        host.becomes("vllm-b", "running")
        assert host.state("vllm-a") == "start-pre"
    host.becomes("vllm-a", "running")
    host.booted.systemctl("stop", "fleet.target")
    host.booted.run(["rm", "/etc/systemd/system/fleet.target"])


def test_a_leftover_that_nothing_ends_is_reported_as_that(
    host: Host, keep_from_dying: Callable[[int], Callable[[], None]]
) -> None:
    """It is in state D, or here as good as that: SIGKILL, systemd's and the guard's, does not end it.

    The guard gives it 10 s for SIGTERM and 5 for SIGKILL.
    """
    host.unit("vllm-a", "0", options="--reap --timeout 20s", more="TimeoutStopSec=500ms")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    pid = int(host.booted.show("vllm-a.service", "MainPID")["MainPID"])
    host.use({0: "80G"}, f"proc 0 {pid} mem=79G")
    let_die = keep_from_dying(pid_outside(host.booted, pid))
    host.booted.systemctl("stop", "vllm-a.service", check=False)
    host.start("vllm-a")
    host.says("vllm-a", rf"waits for GPU 0 .*79\.0 GiB sleep pid {pid} of vllm-a\.service \(leftover")
    last = host.says("vllm-a", r"held after 2[01]\.\d s .*")[0]
    let_die()
    assert f"process {pid} sleep of an ended run does not die, and only a GPU reset or a reboot ends it" in last
    host.says("vllm-a", rf"ERROR vllm-a\.service: could not end leftover {pid} sleep, of an ended run: ")


@pytest.mark.parametrize("python", ["/opt/gone/bin/python -I -m llmhost", f"{sys.executable} -I -S -m llmhost"])
def test_a_broken_virtualenv_keeps_a_service_from_starting_unless_the_drop_in_says_otherwise(
    host: Host, python: str
) -> None:
    """Python is gone; or it runs, and llmhost is not there. A line of one's own, without the shell, needs "-+"."""
    for name, prefix in (("vllm-a", "+"), ("vllm-b", "-+")):
        host.unit(name, "0", more=BROKEN.format(prefix=prefix, python=python))
    host.start("vllm-a", "vllm-b")
    host.becomes("vllm-b", "running")
    host.becomes("vllm-a", "failed")
