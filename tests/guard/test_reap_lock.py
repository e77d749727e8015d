"""`llmhost guard --reap` on a real systemd while others hold locks: no user and no stopped llmhost stops it."""

import sys
from collections.abc import Iterator

import pytest
from tests.fakes.booted import booted_systemd
from tests.guard.test_on_systemd import Host, host
from tests.guard.test_reap import content_of
from tests.state.test_cleanup_lock import AS_NOBODY, HOLDS

__all__ = ["booted_systemd", "host"]

# The first run leaves a process; a later one leaves none.
LEAVES = """
KillMode=process
ExecStart=
ExecStart=/bin/sh -c 'test -e /run/left.pid || { sleep 1000 & echo $$! >/run/left.pid; }; exec sleep 1001'
"""


@pytest.fixture
def left(host: Host) -> Iterator[str]:
    """Give the pid of what an ended run of vllm-a has left."""
    host.booted.run(["rm", "-f", "/run/left.pid"])
    host.unit("vllm-a", "0", options="--reap --settle 0s", more=LEAVES)
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    pid = content_of(host, "/run/left.pid").strip()
    host.booted.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "vllm-a.service")
    host.becomes("vllm-a", "failed")
    yield pid
    host.booted.systemctl("kill", "--signal=SIGKILL", "holder.service", check=False)
    host.booted.systemctl("reset-failed", "holder.service", check=False)


def hold(host: Host, *command: str) -> None:
    host.booted.run(["rm", "-f", "/run/held"])
    host.booted.run(["systemd-run", "--unit=holder", "--property=StandardOutput=file:/run/held", *command])
    content_of(host, "/run/held")


def is_gone(host: Host, pid: str) -> bool:
    return host.booted.run(["kill", "-0", pid], check=False).returncode == 1


def test_a_user_who_locks_shared_memory_delays_nothing(host: Host, left: str) -> None:
    hold(host, *AS_NOBODY, "flock", "/dev/shm", "sh", "-c", "echo held; exec sleep 1000")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    log = host.log("vllm-a")
    assert f"ended leftover {left} sleep, of an ended run: after SIGTERM" in log
    assert "waits, as" not in log
    assert is_gone(host, left)


def test_a_stopped_llmhost_that_has_the_lock_is_named_and_not_waited_for_for_ever(host: Host, left: str) -> None:
    hold(host, sys.executable, "-c", HOLDS, "/run/llmhost")
    holder = content_of(host, "/run/held").strip()
    host.booted.run(["kill", "-STOP", holder])
    host.start("vllm-a")
    busy = rf"another llmhost \(pid {holder}\) is cleaning up"
    host.says("vllm-a", f"waits, as {busy}")
    assert not is_gone(host, left)
    host.says("vllm-a", f"waits no longer, though {busy}", 60)
    host.says("vllm-a", f"ended leftover {left} sleep, of an ended run: after SIGTERM")
    host.becomes("vllm-a", "running")
