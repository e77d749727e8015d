"""The effect of a service's sandbox on a guard without "+": the doctor's finding guard-blinded."""

import re
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.booted import booted_systemd
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.needs import needs_root
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]


def test_one_that_may_not_ask_systemd_lets_the_start_go_on_and_one_without_records_still_waits(host: Host) -> None:
    host.use({0: "80G", 1: "80G", 2: "80G"})
    host.unit("vllm-a", "0", prefix="", more="RestrictAddressFamilies=AF_INET AF_INET6")
    host.unit("vllm-b", "1", prefix="", more="ProtectSystem=strict", options="--timeout 10s")
    host.unit("vllm-c", "2", prefix="+", more="RestrictAddressFamilies=AF_INET\nProtectSystem=strict")
    host.start("vllm-a", "vllm-b", "vllm-c")
    host.becomes("vllm-b", "failed")
    assert re.search(r"held after 10\.\d s", host.log("vllm-b"))
    assert "this run is not recorded" in host.log("vllm-b")
    host.becomes("vllm-a", "running")
    assert "systemd cannot be asked" in host.log("vllm-a")
    assert host.state("vllm-c") == "start-pre", "outside the sandbox it waits as ever"


FIRST_VERSION = 257  # of ProtectControlGroups=strict
IN_CGROUP_NAMESPACE = "/usr/bin/unshare --cgroup "  # what ProtectControlGroups=private and strict do


@pytest.mark.parametrize("setting", ["", "ProtectControlGroups=private", "ProtectControlGroups=strict"])
def test_one_that_does_not_see_its_cgroup_asks_systemd_for_its_unit_and_says_so(host: Host, setting: str) -> None:
    if setting:
        needs_version(host)
    host.use({0: "80G"})
    host.unit("vllm-a", "0", prefix="" if setting else IN_CGROUP_NAMESPACE, more=setting, options="--timeout 5s --reap")
    host.start("vllm-a")
    host.becomes("vllm-a", "failed")
    assert re.search(r"held after 5\.\d s .*GPU 0 \(15\.0 of 85\.5 GiB free\)", host.log("vllm-a"))
    assert "its own cgroup is hidden from it, as by ProtectControlGroups=" in host.log("vllm-a")
    assert "processes cannot be read: cgroup namespace" in host.log("vllm-a"), "so --reap has nothing to go by"
    assert host.record("vllm-a")["verdict"] == "held"


@pytest.mark.parametrize("setting", ["", "ProtectControlGroups=strict"])
def test_one_that_does_not_see_its_cgroup_and_may_not_ask_systemd_is_at_fault(host: Host, setting: str) -> None:
    if setting:
        needs_version(host)
    host.use({0: "80G"})
    more = f"{setting}\nRestrictAddressFamilies=AF_INET"
    host.unit("vllm-a", "0", prefix="" if setting else IN_CGROUP_NAMESPACE, more=more)
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert re.search(r"own cgroup is hidden from it.*systemd cannot be asked for its unit \(no_bus", host.log("vllm-a"))
    assert "the start goes on" in host.log("vllm-a")


def test_while_systemd_does_not_tell_its_unit_it_asks_for_more_time_and_ends_by_a_signal(tmp_path: Path) -> None:
    needs_root()
    bus, notified = socket.socket(socket.AF_UNIX), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    with bus, notified:
        bus.bind(str(tmp_path / "bus"))
        bus.listen()
        notified.bind(str(tmp_path / "notify"))
        notified.settimeout(20)
        given = {"DBUS_SYSTEM_BUS_ADDRESS": f"unix:path={tmp_path}/bus", "NOTIFY_SOCKET": f"{tmp_path}/notify"}
        process = subprocess.Popen(
            [*IN_CGROUP_NAMESPACE.split(), *LLMHOST, "guard", "--run-dir", str(tmp_path)],
            env=environment({**given, "INVOCATION_ID": "1"}),
            stderr=subprocess.PIPE,
            text=True,
        )
        silent, _ = bus.accept()
        for _ in range(3):  # the first one is of its first moment
            assert notified.recv(100) == b"EXTEND_TIMEOUT_USEC=10000000"
        process.terminate()
        _, err = process.communicate(timeout=15)  # and not 20 s
        silent.close()
    assert process.returncode == 128 + signal.SIGTERM
    assert "ended by SIGTERM after" in err


def test_one_that_was_started_by_hand_without_a_cgroup_asks_nobody(host: Host) -> None:
    host.use({0: "600M"})
    command = [*IN_CGROUP_NAMESPACE.split(), sys.executable, "-m", "llmhost", "guard", "--settle", "0s"]
    assignments = ["LD_LIBRARY_PATH=/opt/nvml", "FAKE_NVML_STATE=/opt/nvml/state"]
    done = host.booted.run(["env", "-C", str(Path.cwd()), "-u", "INVOCATION_ID", *assignments, *command], check=False)
    assert (done.returncode, "hidden" in done.stderr) == (2, False)
    assert "this is in no service: name it with --unit UNIT, or put the guard before it with --install" in done.stderr


def needs_version(host: Host) -> None:
    version = host.booted.run(["systemctl", "--version"]).stdout.split()[1]
    if int(version) < FIRST_VERSION:
        pytest.skip(f"systemd {version} does not have this")
