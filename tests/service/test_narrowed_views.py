"""Answers in namespaces as a container has them, where a real systemd runs llmhost as a service."""

import json
import sys
from pathlib import Path

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.inside import ExporterInside, NvmlInside

from llmhost.cli.exits import Exit

__all__ = ["booted_systemd"]

CONFIG = """
host: {pid_namespace: trust}  # the booted systemd is in one
units: {patterns: ['vllm*.service'], discover: false}
collectors: {nvml: false, engine: false}
"""
OWN_SHM = ("--mount", "sh", "-c", 'mount -t tmpfs -o size=64m tmpfs /dev/shm && exec "$@"', "sh")


@pytest.fixture
def host(booted_systemd: Booted) -> Booted:
    booted_systemd.write("/etc/llmhost-test.yml", CONFIG)
    booted_systemd.write_unit("vllm-seen.service", "[Service]\nExecStart=/bin/sleep 1000\n")
    booted_systemd.run(["touch", "/dev/shm/psm_0a1b2c3d"])
    booted_systemd.systemctl("start", "vllm-seen.service")
    return booted_systemd


def of_service(host: Booted, namespaces: tuple[str, ...], command: str, *options: str) -> tuple[int, str]:
    """Run llmhost as a service's main process, in namespaces of its own."""
    inside = ("/usr/bin/unshare", *namespaces) if namespaces else ()
    llmhost = (sys.executable, "-m", "llmhost", command, "--config", "/etc/llmhost-test.yml", *options)
    service = ("systemd-run", "--quiet", "--wait", "--pipe", "--collect", f"--working-directory={Path.cwd()}")
    done = host.run([*service, *inside, *llmhost], check=False)
    return done.returncode, done.stdout or done.stderr


@pytest.mark.parametrize(
    ("namespaces", "causes", "level", "cleaned"),
    [
        ((), {}, Exit.GOOD, "would perhaps clean 1 file"),
        (("--cgroup",), {"processes": "cgroup_namespace"}, Exit.CANNOT_TELL, "--cgroupns=host"),
        (OWN_SHM, {"shared memory": "no_shm"}, Exit.GOOD, "--ipc=host"),
        (
            ("--cgroup", *OWN_SHM),
            {"processes": "cgroup_namespace", "shared memory": "no_shm"},
            Exit.CANNOT_TELL,
            "--cgroupns=host",
        ),
    ],
    ids=["of the host", "own cgroups", "own shared memory", "as a container is by default"],
)
def test_what_namespaces_of_its_own_hide_from_it_is_told_as_unknown(
    host: Booted, namespaces: tuple[str, ...], causes: dict[str, str], level: Exit, cleaned: str
) -> None:
    code, text = of_service(host, namespaces, "status", "--json")
    told = json.loads(text)
    narrowed = {unknown["subject"]: unknown["cause"] for unknown in told["cannot_be_seen"] if "_" in unknown["cause"]}
    assert (code, narrowed) == (level, causes), text
    assert (told["shared_memory"] is None) is ("shared memory" in causes)
    code, text = of_service(host, namespaces, "clean")
    assert cleaned in " ".join(text.split()), text
    assert code == Exit.CANNOT_TELL, text


def test_an_exporter_of_the_tests_in_there_gets_the_signal_that_ends_it(booted_systemd: Booted) -> None:
    with ExporterInside(booted_systemd, NvmlInside(booted_systemd)) as exporter:
        its = Path(f"/proc/{exporter.pid}")
        assert its.exists()
        status, _ = exporter.end()
        assert (status, its.exists(), exporter.pid) == (0, False, None)
