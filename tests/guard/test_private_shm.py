"""systemd/private-shm.conf as it is shipped, on services of a real systemd that are killed with files in /dev/shm."""

import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.inside import ExporterInside, NvmlInside, of
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]

DROP_IN = Path(__file__).parents[2] / "systemd" / "private-shm.conf"
MIB = 1 << 20
SEGMENT_MIB = 256
# As vLLM does: a segment and a semaphore of multiprocessing, and a child that holds the segment too.
PROGRAM = """
import multiprocessing, os, sys
from multiprocessing.shared_memory import SharedMemory
print("at start:", *sorted(os.listdir("/dev/shm")), file=open(sys.argv[1], "a"), flush=True)
segment = SharedMemory(create=True, size=256 << 20)
segment.buf[:] = bytes(segment.size)
def hold(name):
    other = SharedMemory(name)
    multiprocessing.Event().wait()
multiprocessing.Process(target=hold, args=(segment.name,)).start()
print("made", segment.name, file=open(sys.argv[1], "a"), flush=True)
multiprocessing.Event().wait()
"""
# "!" and "/": nobody may neither run the Python of whoever tests nor enter the checkout. The mount namespace stays
# (systemd.service(5)).
MORE = """
User=nobody
WorkingDirectory=/
Restart=always
RestartSec=0
ExecStartPre=/bin/sh -c 'touch /dev/shm/made-by-nobody && rm /dev/shm/made-by-nobody'
ExecStart=
ExecStart=!{python} /opt/test/holds.py /run/{name}.out
"""
CONFIG = """
host: {pid_namespace: trust}
units: {patterns: ['vllm*.service'], discover: false}
policy: {segment_grace: 500ms}
collectors: {engine: false}
"""


@pytest.fixture
def exporter(host: Host) -> Iterator[ExporterInside]:
    booted = host.booted
    booted.write("/opt/test/holds.py", PROGRAM)
    booted.run(["sh", "-c", "rm -f /dev/shm/* && for a in a b; do install -m 666 /dev/null /run/vllm-$a.out; done"])
    for name, gpu in (("vllm-a", "0"), ("vllm-b", "1")):
        host.unit(name, gpu, more=MORE.format(name=name, python=sys.executable))
    booted.run(["mkdir", "-p", "/etc/systemd/system/vllm-b.service.d"])
    booted.write("/etc/systemd/system/vllm-b.service.d/private-shm.conf", DROP_IN.read_text())
    booted.systemctl("daemon-reload")
    with ExporterInside(booted, NvmlInside(booted), CONFIG) as exporter:
        host.use({})
        yield exporter
    booted.systemctl("stop", "vllm-a.service", "vllm-b.service")
    booted.run(["sh", "-c", "rm -rf /etc/systemd/system/vllm-b.service.d /dev/shm/*"])


def in_host_shm(booted: Booted) -> set[str]:
    return set(booted.run(["ls", "/dev/shm"]).stdout.split())


def shmem_mib() -> int:
    (line,) = [line for line in Path("/proc/meminfo").read_text().splitlines() if line.startswith("Shmem:")]
    return int(line.split()[1]) >> 10


def out_of(host: Host, name: str, word: str, times: int) -> list[str]:
    """Wait until the service has said this so often; give what followed it each time."""
    until = time.monotonic() + 120
    while True:
        lines = host.booted.run(["cat", f"/run/{name}.out"]).stdout.splitlines()
        said = [line.removeprefix(word).strip() for line in lines if line.startswith(word)]
        if len(said) >= times:
            return said
        assert time.monotonic() < until, f"{name} said {word!r} {len(said)} times: {lines}, {host.log(name)}"
        time.sleep(0.05)


def segments(exporter: ExporterInside) -> dict[tuple[str, ...], float]:
    found = of(exporter.series()["llmhost_shm_segments"], kind="python_shm")
    return {state: number for state, number in found.items() if number}


def test_private_shared_memory_of_a_killed_service_goes_with_it_and_is_never_the_hosts(
    host: Host, exporter: ExporterInside
) -> None:
    """vllm-a has the host's, for comparison; vllm-b has the drop-in, and both have the guard."""
    booted = host.booted
    before = shmem_mib()
    host.start("vllm-b")
    (segment,) = out_of(host, "vllm-b", "made", 1)
    pid = booted.show("vllm-b.service", "MainPID")["MainPID"]
    inside = set(booted.run(["ls", f"/proc/{pid}/root/dev/shm"]).stdout.split())
    assert segment.startswith("psm_")
    assert {name for name in inside if not name.startswith("sem.")} == {segment}
    assert in_host_shm(booted) == set()
    assert shmem_mib() >= before + SEGMENT_MIB - 64
    assert host.record("vllm-b")["verdict"] == "free", "the guard is outside, and works as ever"

    host.start("vllm-a")
    (first,) = out_of(host, "vllm-a", "made", 1)
    assert first in in_host_shm(booted)
    assert segments(exporter) == {("live",): 1}, "vllm-b's is no business of the host's"

    booted.systemctl("kill", "--signal=SIGKILL", "vllm-a.service", "vllm-b.service")
    assert out_of(host, "vllm-b", "at start:", 2) == ["", ""], "the next run finds nothing of the one that was killed"
    assert first in out_of(host, "vllm-a", "at start:", 2)[1].split()
    out_of(host, "vllm-a", "made", 2)
    own = set(out_of(host, "vllm-b", "made", 2))
    until = time.monotonic() + 120
    while segments(exporter) != {("live",): 1, ("stale",): 1}:  # both vllm-a's
        assert time.monotonic() < until, segments(exporter)
        time.sleep(0.1)

    booted.systemctl("stop", "vllm-a.service", "vllm-b.service")
    names = in_host_shm(booted)
    assert (first in names, names & own) == (True, set())
    booted.run(["sh", "-c", "rm -f /dev/shm/*"])
    until = time.monotonic() + 120
    while shmem_mib() > before + SEGMENT_MIB // 2:  # vllm-b's two are given back, and nobody has removed them
        assert time.monotonic() < until, (before, shmem_mib())
        time.sleep(0.05)
