"""A systemd that is there and busy, with a daemon-reload say, as a guard begins or while it waits."""

import subprocess
from collections.abc import Iterator

import pytest
from tests.fakes.booted import booted_systemd
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]

GENERATOR = "/run/systemd/system-generators/slow"
GENERATES = """#!/bin/sh
touch /run/busy
until test -e /run/done; do sleep 0.05; done
"""
# Holds the guard back until systemd is busy.
GATE = '+/bin/sh -c \'touch /run/at-gate; until test -e /run/busy; do sleep 0.05; done; exec "$$0" "$$@"\' '
ENOUGH = "--gpus 0 --need-free 0.9"
LEAVES = "/bin/sh -c 'test -e /run/left.pid || { sleep 1000 & echo $$! >/run/left.pid; }; exec sleep 1001'"


class Systemd:
    """The booted systemd, which a test makes busy for as long as it likes."""

    def __init__(self, host: Host) -> None:
        self._booted = host.booted
        self._booted.run(["mkdir", "-p", "/run/systemd/system-generators"])
        self._busy: subprocess.Popen[bytes] | None = None

    def begin(self, command: str) -> None:
        """Have systemd read its units anew, which a generator makes slow."""
        self._booted.write(GENERATOR, GENERATES)
        self._booted.run(["chmod", "755", GENERATOR])
        self._busy = subprocess.Popen(["nsenter", "-t", str(self._booted.pid), "-a", "systemctl", command])
        self.waits_for("/run/busy")

    def end(self) -> None:
        self._booted.run(["sh", "-c", f"rm -f {GENERATOR}; touch /run/done"])
        if self._busy is not None:
            self._busy.wait(60)
        self._busy = None

    def waits_for(self, path: str) -> None:
        self._booted.run(["timeout", "60", "sh", "-c", f"until test -e {path}; do sleep 0.05; done"])

    def forget(self) -> None:
        self._booted.run(["sh", "-c", "rm -f /run/busy /run/done /run/at-gate /run/left.pid"])


@pytest.fixture
def systemd(host: Host) -> Iterator[Systemd]:
    systemd = Systemd(host)
    systemd.forget()
    yield systemd
    systemd.end()
    systemd.forget()


def test_what_a_unit_needs_stays_known_while_systemd_reloads_for_long(host: Host, systemd: Systemd) -> None:
    host.use({0: "80G"})
    host.unit("vllm-a", "0")
    host.start("vllm-a")
    host.says("vllm-a", "waits for GPU 0")
    systemd.begin("daemon-reload")
    host.says("vllm-a", r"; (8|9|1\d) s of")  # more than it takes until what never was known is
    systemd.end()
    assert host.state("vllm-a") == "start-pre", host.log("vllm-a")
    assert "cannot" not in host.log("vllm-a")
    host.use({0: "0"})
    host.becomes("vllm-a", "running")


@pytest.mark.parametrize("command", ["daemon-reload", "daemon-reexec"])
def test_a_systemd_that_is_busy_as_the_guard_begins_lets_no_start_into_memory_that_is_held(
    host: Host, systemd: Systemd, command: str
) -> None:
    host.use({0: "80G"})
    host.unit("vllm-a", "0", prefix=GATE)
    host.start("vllm-a")
    systemd.waits_for("/run/at-gate")
    systemd.begin(command)
    needs = r"waits for systemd to say what is needed: .*; for GPU 0 \(80\.0 GiB in use, less than 1\.0 GiB wanted\)"
    host.says("vllm-a", needs)
    host.says("vllm-a", rf"{needs}.*; ([6-9]|1\d) s of")
    systemd.end()
    host.says("vllm-a", r"waits for GPU 0 \(15\.0 of 85\.5 GiB free\)")
    assert host.state("vllm-a") == "start-pre", host.log("vllm-a")
    host.use({0: "0"})
    host.becomes("vllm-a", "running")
    assert "cannot tell" not in host.log("vllm-a")


def test_the_remedies_wait_for_a_systemd_that_is_busy_also_where_the_need_is_known_without_it(
    host: Host, systemd: Systemd
) -> None:
    host.unit("vllm-a", "0", options=f"--reap {ENOUGH}", more=f"KillMode=process\nExecStart=\nExecStart={LEAVES}\n")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    systemd.waits_for("/run/left.pid")
    host.booted.systemctl("kill", "--kill-whom=main", "--signal=SIGKILL", "vllm-a.service")
    host.becomes("vllm-a", "failed")
    more = f"KillMode=process\nExecStart=\nExecStart={LEAVES}\n"
    host.unit("vllm-a", "0", options=f"--reap {ENOUGH}", more=more, prefix=GATE)
    host.start("vllm-a")
    systemd.waits_for("/run/at-gate")
    systemd.begin("daemon-reload")
    unseen = r"waits to see what ended runs have left \(enough is free\): systemd does not tell of the unit \("
    host.says("vllm-a", rf"{unseen}.*; ([6-9]|1\d) s of")
    systemd.end()
    host.becomes("vllm-a", "running")
    assert "ended leftover" in host.log("vllm-a")
