"""A command that sees no process and no shared memory but its own, whatever other tests run beside it."""

import os
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes.needs import needs
from tests.fakes.opened import open_to_all


@dataclass(frozen=True, slots=True)
class Alone:
    prefix: tuple[str, ...]  # of the command
    options: tuple[str, ...]  # of llmhost, which is to take its PID namespace for the host's


@pytest.fixture
def alone(tmp_path: Path) -> Alone:
    """Give what runs it in namespaces of its own, as root; else it sees what there is."""
    config = tmp_path / "alone.yml"
    config.write_text("host: {pid_namespace: trust}\n")
    if os.geteuid() != 0:
        return Alone((), ("--config", str(config)))
    open_to_all(tmp_path)
    namespaces = (needs("unshare"), "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
    mount = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    return Alone((*namespaces, "sh", "-c", mount, "sh"), ("--config", str(config)))
