"""A stand-in for vLLM, small and without a model: run as `python …/vllm serve MODEL`, a copy of this file.

It has what matters to who belongs to whom: titles written over the arguments, children by multiprocessing with its
pipes, one resource tracker, a segment of shared memory from the core to its workers, and vLLM's ways of ending:

- the server ends when a core has ended, and on SIGTERM kills cores and workers with SIGKILL first;
- a core ends when a worker has ended, and does not care whether its server lives;
- a worker ends when its core has ended, once somebody has opened the FIFO `leave` for writing.

`--workers N` (1), `--cores N` (1), `--api-server-count N`: a launcher with servers, which all listen on one socket, and
a coordinator. The environment has STANDIN_DIRECTORY, with the FIFOs `report`, to which every process tells in one line
of JSON what it is, and `leave`; and STANDIN_METHOD, how children are made.
"""

import ctypes
import json
import multiprocessing
import os
import signal
import socket
import sys
from multiprocessing import connection, forkserver, parent_process, resource_tracker
from multiprocessing.shared_memory import SharedMemory
from typing import Any

DIRECTORY = os.environ["STANDIN_DIRECTORY"]


def set_title(title: str) -> None:
    """Do what setproctitle does: write over the arguments, the rest of them with NULs; the first 15 bytes into comm."""
    with open("/proc/self/stat") as file:  # noqa: PTH123  # pathlib is slow to import, in every child
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])  # fields 48 and 49: arg_start, arg_end
    ctypes.memset(start, 0, end - start)
    ctypes.memmove(start, title.encode(), len(title))
    with open("/proc/self/comm", "wb") as file:  # noqa: PTH123
        file.write(title.encode()[:15])


def report(name: str, **more: object) -> None:
    with open(f"{DIRECTORY}/report", "w") as file:  # noqa: PTH123
        file.write(json.dumps({"name": name, "pid": os.getpid(), **more}) + "\n")


def wait_for_end_of(*children: multiprocessing.process.BaseProcess) -> None:
    connection.wait([child.sentinel for child in children])


def worker(title: str, segment: str) -> None:
    set_title(title)
    held = SharedMemory(segment)
    report(title)
    parent = parent_process()
    assert parent is not None
    connection.wait([parent.sentinel])
    with open(f"{DIRECTORY}/leave", "rb"):  # noqa: PTH123  # blocks until somebody opens the other end
        held.close()
    os._exit(0)


def core(title: str, workers: list[str], ready: connection.Connection) -> None:
    set_title(title)
    segment = SharedMemory(create=True, size=4096)
    method: Any = multiprocessing.get_context(os.environ["STANDIN_METHOD"])
    children = [method.Process(target=worker, args=(name, segment.name)) for name in workers]
    for child in children:
        child.start()
    ready.send([child.pid for child in children])
    report(title, segment=segment.name)
    wait_for_end_of(*children)
    os._exit(1)


def coordinator() -> None:
    set_title("VLLM::DPCoordinator")
    report("VLLM::DPCoordinator")
    signal.pause()


def listen(title: str, listener: socket.socket) -> None:
    set_title(title)
    report(title, port=listener.getsockname()[1])
    signal.pause()


def serve() -> None:
    given = dict(zip(sys.argv[3::2], sys.argv[4::2], strict=True))
    cores, workers = int(given.get("--cores", "1")), int(given.get("--workers", "1"))
    servers = int(given.get("--api-server-count", "0"))
    method: Any = multiprocessing.get_context(os.environ["STANDIN_METHOD"])
    children: list[multiprocessing.process.BaseProcess] = []
    deep: list[int] = []

    def end(*_: object) -> None:
        for pid in [*(child.pid for child in children), *deep]:
            if pid:
                os.kill(pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    if servers:
        children.append(method.Process(target=coordinator))
    ends = []
    for index in range(cores):
        rank = f"_DP{index}" if cores > 1 else ""
        titles = [f"VLLM::Worker{rank}_TP{number}" for number in range(workers)]
        reading, writing = method.Pipe(duplex=False)
        children.append(method.Process(target=core, args=(f"VLLM::EngineCore{rank}", titles, writing)))
        ends.append(reading)
    if servers:
        listener = socket.create_server(("127.0.0.1", 0))
        children += [
            method.Process(target=listen, args=(f"VLLM::APIServer_{index}", listener)) for index in range(servers)
        ]
    for child in children:
        child.start()
    for reader in ends:
        deep += reader.recv()
    tracker: Any = resource_tracker._resource_tracker
    fork_server: Any = forkserver._forkserver
    report("vllm", tracker=tracker._pid, forkserver=fork_server._forkserver_pid)
    wait_for_end_of(*children)
    os._exit(1)


if __name__ == "__main__":
    serve()
