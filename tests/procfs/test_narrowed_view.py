"""Narrowed views of the host, by written links and files; tests/service has real namespaces."""

from collections.abc import Callable
from pathlib import Path

import pytest
from tests.fakes.procfs import write_proc

from llmhost.model.reading import Cause
from llmhost.sources.base import SourceError
from llmhost.sources.narrowed_view import require_host_cgroups, require_host_network, require_host_shm

HOSTS_PIDS, OWN_PIDS = 4026531836, 4026532281
HOSTS_CGROUPS, OWN_CGROUPS, OTHER_CGROUPS = "cgroup:[4026531835]", "cgroup:[4026532290]", "cgroup:[4026532291]"
HOSTS_IPC, OWN_IPC = "ipc:[4026531839]", "ipc:[4026532282]"


def cause_of(check: Callable[[], None]) -> str:
    try:
        check()
    except SourceError as error:
        return error.cause
    return ""


def link(path: Path, target: str | Path | None) -> None:
    path.unlink(missing_ok=True)
    if target is not None:
        path.symlink_to(target)


@pytest.mark.parametrize(
    ("pids", "links", "init", "narrowed"),
    [
        (HOSTS_PIDS, (HOSTS_CGROUPS, HOSTS_CGROUPS), "0::/init.scope\n", False),
        (HOSTS_PIDS, (HOSTS_CGROUPS, None), "0::/init.scope\n", False),
        (HOSTS_PIDS, (OWN_CGROUPS, HOSTS_CGROUPS), "0::/../../init.scope\n", True),
        (HOSTS_PIDS, (OWN_CGROUPS, None), "0::/init.scope\n", True),  # without privilege
        (HOSTS_PIDS, (None, None), "0::/../../init.scope\n", True),
        (HOSTS_PIDS, (None, None), "0::/..\n", True),
        (HOSTS_PIDS, (None, None), "1:name=systemd:/../../init.scope\n0::/\n", True),
        (HOSTS_PIDS, (None, None), "0::/a..b/init.scope\n", False),
        (HOSTS_PIDS, (None, None), "0::/init.scope\n", False),
        (OWN_PIDS, (OWN_CGROUPS, OWN_CGROUPS), "0::/init.scope\n", False),  # a container that runs a systemd
        (OWN_PIDS, (OWN_CGROUPS, OTHER_CGROUPS), "0::/../../init.scope\n", True),  # in a service of that
        (OWN_PIDS, (OWN_CGROUPS, None), "0::/init.scope\n", False),
    ],
)
def test_cgroups_are_the_hosts_where_process_1_sees_the_same(
    pids: int, links: tuple[str | None, str | None], init: str, narrowed: bool, tmp_path: Path
) -> None:
    write_proc(tmp_path, [], pid_namespace=pids)
    link(tmp_path / "self/ns/cgroup", links[0])
    link(tmp_path / "1/ns/cgroup", links[1])
    (tmp_path / "1/cgroup").write_text(init)
    found = cause_of(lambda: require_host_cgroups(str(tmp_path)))
    assert found == (Cause.CGROUP_NAMESPACE if narrowed else "")


@pytest.mark.parametrize(
    ("given", "narrowed"),
    [
        ((HOSTS_PIDS, False, HOSTS_IPC, "same"), False),
        ((HOSTS_PIDS, False, OWN_IPC, "same"), False),  # mounted, and not by --ipc=host
        ((HOSTS_PIDS, False, HOSTS_IPC, "another"), True),
        ((HOSTS_PIDS, True, HOSTS_IPC, "another"), True),
        ((HOSTS_PIDS, False, HOSTS_IPC, "not seen"), False),
        ((HOSTS_PIDS, False, OWN_IPC, "not seen"), True),
        ((OWN_PIDS, False, HOSTS_IPC, "same"), False),
        ((OWN_PIDS, False, OWN_IPC, "same"), True),  # process 1 is of our own container
        ((OWN_PIDS, True, OWN_IPC, "same"), False),
    ],
)
def test_shared_memory_is_the_hosts_where_process_1_has_the_same_or_else_where_ipc_is(
    given: tuple[int, bool, str, str], narrowed: bool, tmp_path: Path
) -> None:
    pids, trusted, ipc, inits = given
    procfs, shm = write_proc(tmp_path / "proc", [], pid_namespace=pids), Path("/dev/shm")
    link(procfs / "self/ns/ipc", ipc)
    link(procfs / "1/root", {"same": Path("/"), "another": tmp_path, "not seen": None}[inits])
    (tmp_path / "dev").mkdir()
    link(tmp_path / "dev/shm", Path("/proc"))
    device = shm.stat().st_dev
    found = cause_of(lambda: require_host_shm(str(procfs), str(shm), device, trusts_pids=trusted))
    assert found == (Cause.NO_SHM if narrowed else "")


@pytest.mark.parametrize(
    ("ours", "inits", "narrowed"),
    [("net:[1]", "net:[1]", False), ("net:[2]", "net:[1]", True), ("net:[2]", None, False), (None, "net:[1]", False)],
)
def test_the_network_is_the_hosts_where_process_1_has_the_same(
    ours: str | None, inits: str | None, narrowed: bool, tmp_path: Path
) -> None:
    write_proc(tmp_path, [])
    link(tmp_path / "self/ns/net", ours)
    link(tmp_path / "1/ns/net", inits)
    assert cause_of(lambda: require_host_network(str(tmp_path))) == (Cause.NETWORK_NAMESPACE if narrowed else "")
