"""Processes that listen: real sockets of real processes."""

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.fakes.needs import needs, needs_root
from tests.fakes.shm import process_id
from tests.fakes.values import process

from llmhost.model.process import Process, Role
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.sources.engine.listening import read_listening

PROC = Path("/proc")
TCP = "s = socket.create_server(('127.0.0.1', 0))"
UNIX = "s = socket.socket(socket.AF_UNIX); s.bind('\\0llmhost-test-%d' % os.getpid()); s.listen()"
CLIENT = "s = socket.create_server(('127.0.0.1', 0)); c = socket.create_connection(s.getsockname()); s.close()"


@contextmanager
def having(code: str, *before: str) -> Iterator[int]:
    """Give the pid of a process that has run this code."""
    command = [*before, sys.executable, "-c", f"import os, socket; {code}; print(flush=True); input()"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as child:
        assert child.stdout is not None
        child.stdout.readline()
        try:
            yield child.pid
        finally:
            child.kill()


def running(pid: int, role: Role = Role.API_SERVER) -> Process:
    return process(pid, start=process_id(pid).start_ticks, role=role)


def answer(process: Process) -> object:
    return read_listening(PROC, [process])[process.id]


def test_a_process_that_listens_by_tcp_does_whatever_it_is() -> None:
    with having(TCP) as pid:
        assert answer(running(pid)) == answer(running(pid, Role.OTHER)) == Ok(True)
    with having(CLIENT) as pid:
        assert answer(running(pid)) == Ok(False)
    with having("pass") as pid:
        assert answer(running(pid)) == Ok(False)


def test_a_unix_socket_counts_for_an_engines_server_alone() -> None:
    with having(UNIX) as pid:
        assert answer(running(pid)) == answer(running(pid, Role.LAUNCHER)) == Ok(True)
        assert answer(running(pid, Role.OTHER)) == Ok(False)  # a fork server has one for its own


def test_a_process_of_another_network_namespace_is_unknown_once_it_has_a_socket() -> None:
    needs_root()
    with having("s = socket.socket()", needs("unshare"), "--net") as pid:
        found = answer(running(pid))
        assert isinstance(found, Failed)
        assert found.cause is Cause.NETWORK_NAMESPACE
    with having("pass", needs("unshare"), "--net") as pid:
        assert answer(running(pid)) == Ok(False)


def test_a_process_that_has_ended_or_is_another_by_now_is_unknown() -> None:
    with having("pass") as pid:
        another = process(pid, start=process_id(pid).start_ticks + 1, role=Role.OTHER)
        assert isinstance(answer(another), Failed)
        ended = running(pid)
    assert isinstance(answer(ended), Failed)


def test_without_a_procfs_it_is_unknown_and_without_processes_nothing_is_read(tmp_path: Path) -> None:
    own = running(os.getpid())
    assert isinstance(read_listening(tmp_path, [own])[own.id], Failed)
    assert read_listening(tmp_path, []) == {}


def test_our_own_listening_socket_is_seen() -> None:
    with socket.create_server(("127.0.0.1", 0)):
        assert answer(running(os.getpid(), Role.OTHER)) == Ok(True)
