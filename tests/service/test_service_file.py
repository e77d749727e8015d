"""systemd/llmhost.service: what systemd thinks of it, and, run by a real systemd, that nothing is hidden from it."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.needs import needs
from tests.fakes.nvml import FakeNvml
from tests.fakes.prometheus import free_port

__all__ = ["booted_systemd"]

ROOT = Path(__file__).parents[2]
SERVICE = ROOT / "systemd" / "llmhost.service"
MOST_EXPOSED = 4.0
LLMHOST = Path(sys.executable).with_name("llmhost")

# What the sandbox must let through, told by the same sandbox: run in the service's place.
PROBE = """
import errno, os, sys
other = int(sys.argv[1])
def told(what, read):
    try:
        read()
        print(what, "ok", flush=True)
    except OSError as error:
        print(what, errno.errorcode[error.errno], flush=True)
told("maps", lambda: open(f"/proc/{other}/maps").read(1))
told("fd", lambda: [os.readlink(f"/proc/{other}/fd/{fd}") for fd in os.listdir(f"/proc/{other}/fd")])
told("cgroup", lambda: open(f"/proc/{other}/cgroup").read())
told("shm", lambda: os.stat("/dev/shm/seen-by-all"))
told("nvidia", lambda: os.open("/run/nvidia-of-test", os.O_RDWR))
told("tty", lambda: os.open("/run/tty-of-test", os.O_RDWR))
told("etc", lambda: open("/etc/llmhost-was-here", "w"))
told("state", lambda: open("/var/lib/llmhost/written", "w"))
told("run", lambda: open("/run/llmhost/written", "w"))
told("kill", lambda: os.kill(other, 0))
"""


def test_systemd_has_nothing_to_say_about_it(tmp_path: Path) -> None:
    installed = tmp_path / SERVICE.name
    installed.write_text(SERVICE.read_text().replace("/opt/llmhost/bin/llmhost", "/bin/true"))
    done = subprocess.run(
        [needs("systemd-analyze"), "verify", "--man=no", str(installed)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_its_exposure_is_small() -> None:
    command = [needs("systemd-analyze"), "security", "--offline=yes", "--no-pager", str(SERVICE)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    exposure = re.search(r"Overall exposure level for llmhost.service: ([0-9.]+)", done.stdout)
    assert exposure is not None
    assert float(exposure[1]) <= MOST_EXPOSED


def test_every_directive_of_the_sandbox_has_its_reason() -> None:
    """A block of directives begins with a comment."""
    body = SERVICE.read_text().split("[Service]")[1].split("[Install]")[0]
    for block in re.split(r"\n\s*\n", body.strip()):
        assert block.startswith("#"), block


@pytest.fixture(scope="module")
def inside(booted_systemd: Booted) -> Iterator[Booted]:
    """Give a booted systemd with a fake driver, and a process of another user in a unit that looks like vLLM's."""
    nvml = FakeNvml(booted_systemd.root / "opt/fake-nvml")
    booted_systemd.write_unit(
        "vllm-other.service", "[Service]\nUser=nobody\nExecStart=/bin/bash -c 'exec -a VLLM::EngineCore sleep 1000'\n"
    )
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", "vllm-other.service")
    pid = int(booted_systemd.show("vllm-other.service", "MainPID")["MainPID"])
    until = time.monotonic() + 120
    while booted_systemd.run(["cat", f"/proc/{pid}/comm"]).stdout != "sleep\n":
        assert time.monotonic() < until
    nvml.write(["gpu 0", f"proc 0 {pid} mem=4G"])
    booted_systemd.run(["touch", "/dev/shm/seen-by-all"])
    booted_systemd.run(["mkdir", "-p", "/etc/llmhost"])
    booted_systemd.write("/etc/llmhost/llmhost.yml", "host: {pid_namespace: trust}\n")  # we are in one of our own
    booted_systemd.run(["mknod", "/run/nvidia-of-test", "c", "195", "250"])
    booted_systemd.run(["mknod", "/run/tty-of-test", "c", "4", "250"])
    yield booted_systemd
    booted_systemd.systemctl("stop", "llmhost.service", "vllm-other.service")
    booted_systemd.run(["rm", "-rf", "/etc/systemd/system/llmhost.service.d", "/etc/systemd/system/llmhost.service"])
    booted_systemd.systemctl("daemon-reload")


def install(booted: Booted, exec_start: str) -> None:
    """Install the shipped file as it is; what a drop-in changes is where the program lies in this checkout."""
    lines = [
        "[Service]",
        "ExecStart=",
        f"ExecStart={exec_start}",
        "ExecReload=",
        f"ExecReload=/bin/sh -c 'exec {LLMHOST} check-config >/dev/null'",
        "ExecReload=/bin/kill -HUP $MAINPID",
        'Environment="LD_LIBRARY_PATH=/opt/fake-nvml" "FAKE_NVML_STATE=/opt/fake-nvml/state"',
    ]
    if Path(sys.executable).resolve().is_relative_to(Path.home()) or str(ROOT).startswith(("/home/", "/root/")):
        lines.append("ProtectHome=read-only")  # this Python lies in somebody's home
    if str(ROOT).startswith("/tmp/"):
        lines.append(f"BindReadOnlyPaths={ROOT}")  # PrivateTmp= hides the checkout
    booted.systemctl("stop", "llmhost.service", check=False)
    booted.run(["mkdir", "-p", "/etc/systemd/system/llmhost.service.d"])
    booted.write_unit("llmhost.service", SERVICE.read_text())
    booted.write_unit("llmhost.service.d/test.conf", "\n".join(lines) + "\n")
    booted.systemctl("daemon-reload")


def is_active_again(inside: Booted, main_pid: str) -> None:
    """Wait for the end of a reload, which the service reports: `systemctl reload` returns once it has its SIGHUP."""
    until = time.monotonic() + 120
    while (shown := inside.show("llmhost.service", "MainPID", "ActiveState"))["ActiveState"] == "reloading":
        assert time.monotonic() < until
    assert shown == {"MainPID": main_pid, "ActiveState": "active"}


def test_run_by_systemd_it_sees_everything_and_ends_quickly(inside: Booted) -> None:
    port = free_port()
    install(inside, f"{LLMHOST} serve --web.listen-address 127.0.0.1:{port}")
    inside.systemctl("start", "llmhost.service")  # Type=notify: returns once it is ready
    assert inside.show("llmhost.service", "StatusText")["StatusText"] == f"serving on 127.0.0.1:{port}"
    fetch = f"import urllib.request as r; print(r.urlopen('http://127.0.0.1:{port}/metrics').read().decode())"
    page = inside.run([sys.executable, "-c", fetch]).stdout.splitlines()
    for collector in ("nvml", "procfs", "systemd"):
        assert f'llmhost_collector_success{{collector="{collector}"}} 1.0' in page
    assert "llmhost_unreadable_processes 0.0" in page
    assert 'llmhost_unit_processes{manager="system",role="core",unit="vllm-other.service"} 1.0' in page
    held = 'kind="current",manager="system",unit="vllm-other.service"'
    holders = [line for line in page if line.startswith("llmhost_gpu_holder_memory_bytes")]
    assert len(holders) == 1
    assert held in holders[0]
    main = inside.show("llmhost.service", "MainPID")["MainPID"]
    inside.systemctl("reload", "llmhost.service")
    is_active_again(inside, main)
    inside.write("/etc/llmhost/llmhost.yml", "units: {patern: [vllm]}\n")
    reload = inside.run(["systemctl", "reload", "llmhost.service"], check=False)
    inside.write("/etc/llmhost/llmhost.yml", "host: {pid_namespace: trust}\n")
    assert reload.returncode != 0
    is_active_again(inside, main)
    began = time.monotonic()
    inside.systemctl("stop", "llmhost.service")
    assert time.monotonic() - began < 10, "and not TimeoutStopSec="
    assert inside.show("llmhost.service", "Result")["Result"] == "success"
    history = json.loads(inside.run(["cat", "/var/lib/llmhost/history.json"]).stdout)["history"]
    assert history["boot_id"] == inside.run(["cat", "/proc/sys/kernel/random/boot_id"]).stdout.strip()
    kept = inside.run(["ls", "/var/lib/llmhost"]).stdout.split()
    assert {"history.json", "history.json.synced", "lock"} <= set(kept)


def test_its_sandbox_hides_nothing_that_is_needed_and_gives_nothing_else(inside: Booted) -> None:
    other = inside.show("vllm-other.service", "MainPID")["MainPID"]
    inside.write("/opt/probe.py", PROBE)
    inside.write("/opt/probe.sh", f"#!/bin/sh\n{sys.executable} -B /opt/probe.py {other} >/var/lib/llmhost/told\n")
    inside.run(["chmod", "+x", "/opt/probe.sh"])
    install(inside, "/bin/sh /opt/probe.sh")
    inside.write_unit("llmhost.service.d/zz-once.conf", "[Service]\nType=oneshot\nRestart=no\nWatchdogSec=0\n")
    inside.systemctl("daemon-reload")
    inside.systemctl("start", "llmhost.service")
    facts = dict(line.split() for line in inside.run(["cat", "/var/lib/llmhost/told"]).stdout.splitlines())
    inside.run(["rm", "/etc/systemd/system/llmhost.service.d/zz-once.conf"])
    assert facts == {
        "maps": "ok",
        "fd": "ok",
        "cgroup": "ok",
        "shm": "ok",
        "nvidia": "ENXIO",  # let through: it is the kernel that has no such device
        "tty": "EPERM",
        "etc": "EROFS",
        "state": "ok",
        "run": "ok",
        "kill": "EPERM",
    }
