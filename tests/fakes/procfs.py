"""A procfs on disk, for trees that cannot be run here: other engines, other hosts, recorded incidents.

    write_proc(tmp_path, [
        {"pid": 4711, "argv": ["vllm", "serve", "m"], "cgroup": "/system.slice/vllm.service"},
        {"pid": 4712, "ppid": 4711, "argv": ["VLLM::EngineCore"], "comm": "VLLM::EngineCor",
         "cgroup": "/system.slice/vllm.service"},
    ])

What is not given: ppid 1, start = 100 × pid ticks, state S, pgrp and session = pid, comm = the base name of argv[0] cut
to 15 bytes, no argv, cgroup /, flags 0, the initial PID and network namespaces. `pipes` and `sockets` are fd → inode;
without both the descriptors cannot be read. `cgroup` is a path (of the v2 line) or the file's full text, which has ':'
and a newline. `uid` needs root and is otherwise ignored. Process 1, systemd in /init.scope, is added where the list has
none, as a procfs without it means to the source that processes are hidden. Bytes are taken as they are, for names that
are no text. Everything is JSON but bytes and the descriptors of pipes, so lists may come from a recording.
"""

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Required, TypedDict

INITIAL_PID_NAMESPACE = 4026531836  # include/linux/proc_ns.h
INITIAL_NETWORK_NAMESPACE = 4026531840  # the same: PROC_NET_INIT_INO
BOOT_ID = "5f0c5b3e-8a37-4a2f-9d6e-0d6a3c1b7f11"
INIT: "ProcessEntry" = {
    "pid": 1,
    "ppid": 0,
    "start": 3,
    "argv": ["/sbin/init"],
    "comm": "systemd",
    "cgroup": "/init.scope",
}


class ProcessEntry(TypedDict, total=False):
    pid: Required[int]
    ppid: int
    start: int  # clock ticks since boot
    state: str
    pgrp: int
    session: int
    comm: str | bytes
    argv: Sequence[str | bytes]
    cgroup: str
    uid: int
    flags: int
    pipes: Mapping[int, int]
    sockets: Mapping[int, int]
    pid_namespace: int
    network_namespace: int


def write_proc(
    root: Path,
    processes: Sequence[ProcessEntry],
    *,
    memory_total_kib: int = 2_113_406_976,
    memory_available_kib: int = 2_000_000_000,
    pid_namespace: int = INITIAL_PID_NAMESPACE,
    boot_id: str = BOOT_ID,
    listeners: Mapping[int, int] | None = None,
) -> Path:
    """Write a procfs with these processes and nothing else of that kind under `root`; gives `root` back.

    `listeners` are ports of 127.0.0.1 that are listened on → inodes of the sockets.
    """
    given = processes if any(process["pid"] == 1 for process in processes) else [INIT, *processes]
    for process in given:
        write_process(root, process)
    _write_namespaces(root / "self/ns", pid_namespace, INITIAL_NETWORK_NAMESPACE)
    network = root / "self/net"
    network.mkdir(exist_ok=True)
    (network / "tcp").write_text(_listeners(listeners or {}))
    (network / "unix").write_text("Num       RefCount Protocol Flags    Type St Inode Path\n")
    (root / "meminfo").write_text(_meminfo(memory_total_kib, memory_available_kib))
    random = root / "sys/kernel/random"
    random.mkdir(parents=True, exist_ok=True)
    (random / "boot_id").write_text(boot_id + "\n")
    return root


def write_process(root: Path, process: ProcessEntry) -> Path:
    """Write one process, in place of what was there with its pid."""
    pid = process["pid"]
    directory = root / str(pid)
    directory.mkdir(parents=True, exist_ok=True)
    argv = [os.fsencode(argument) for argument in process.get("argv", ())]
    comm = os.fsencode(process.get("comm", os.path.basename(argv[0])[:15] if argv else "fake"))  # noqa: PTH119  # bytes
    (directory / "stat").write_bytes(_stat(process, comm))
    (directory / "cmdline").write_bytes(b"".join(argument + b"\0" for argument in argv))
    cgroup = process.get("cgroup", "/")
    (directory / "cgroup").write_text(cgroup if "\n" in cgroup else f"0::{cgroup}\n")
    _write_namespaces(
        directory / "ns",
        process.get("pid_namespace", INITIAL_PID_NAMESPACE),
        process.get("network_namespace", INITIAL_NETWORK_NAMESPACE),
    )
    shutil.rmtree(directory / "fd", ignore_errors=True)
    if "pipes" in process or "sockets" in process:
        (directory / "fd").mkdir()
        for kind, inodes in (("pipe", process.get("pipes", {})), ("socket", process.get("sockets", {}))):
            for descriptor, inode in inodes.items():
                (directory / "fd" / str(descriptor)).symlink_to(f"{kind}:[{inode}]")
    if "uid" in process and os.geteuid() == 0:
        os.chown(directory, process["uid"], process["uid"])
    return directory


def _write_namespaces(directory: Path, pid: int, network: int) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    directory.mkdir(parents=True)
    (directory / "pid").symlink_to(f"pid:[{pid}]")
    (directory / "net").symlink_to(f"net:[{network}]")


def _stat(process: ProcessEntry, comm: bytes) -> bytes:
    pid = process["pid"]
    fields = [0] * 49  # from field 4, ppid, on (proc(5))
    fields[0] = process.get("ppid", 1)
    fields[1] = process.get("pgrp", pid)
    fields[2] = process.get("session", pid)
    fields[5] = process.get("flags", 0)
    fields[18] = process.get("start", 100 * pid)
    numbers = " ".join(str(field) for field in fields)
    return b"%d (%s) %s %s\n" % (pid, comm, process.get("state", "S").encode(), numbers.encode())


def _listeners(inodes: Mapping[int, int]) -> str:
    """Write /proc/net/tcp, with the address 127.0.0.1 in the machine's byte order."""
    loopback = int.from_bytes(b"\x7f\0\0\1", sys.byteorder)
    rows = [
        f"{number:4}: {loopback:08X}:{port:04X}"
        f" 00000000:0000 0A 00000000:00000000 00:00000000 00000000     0        0 {inode} 1 0 100 0 0 10 0\n"
        for number, (port, inode) in enumerate(inodes.items())
    ]
    head = "  sl  local_address rem_address   st tx_queue rx_queue tr tm->when retrnsmt   uid  timeout inode\n"
    return "".join([head, *rows])


def _meminfo(total_kib: int, available_kib: int) -> str:
    values = {"MemTotal": total_kib, "MemFree": available_kib // 2, "MemAvailable": available_kib}
    rest = ("Buffers", "Cached", "Active", "Inactive", "Shmem", "Slab", "SReclaimable", "SUnreclaim")  # psutil's wants
    return "".join(f"{name + ':':<16}{value:>8} kB\n" for name, value in {**values, **dict.fromkeys(rest, 0)}.items())
