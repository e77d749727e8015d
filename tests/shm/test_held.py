"""The holders of each file: real processes that hold them the ways that real programs do."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.needs import needs, needs_root
from tests.fakes.other_users import open_path
from tests.fakes.shm import MMAP, Child, Children, ShownProcesses, by_path, holders, mounted, observe, source, these

from llmhost.model.segment import SegmentKind

__all__ = ["open_path"]

ROOT = Path(__file__).parents[2]
MAKE = "from multiprocessing.shared_memory import SharedMemory; made = SharedMemory(create=True, size={size})"
ATTACH = "from multiprocessing.shared_memory import SharedMemory; attached = SharedMemory(name={name!r})"


@pytest.fixture
def tmp_path(open_path: Path) -> Path:
    """Give one that other users may enter, in place of pytest's."""
    return open_path


def make(child: Child, size: int = 65536) -> str:
    """Have it make a shared memory segment; gives its name."""
    name = child.do(MAKE.format(size=size) + "; answer = made.name")
    assert isinstance(name, str)
    return name


def test_a_segment_is_held_by_its_maker_and_by_a_process_that_attached_later(
    tmpfs: Path, processes: ShownProcesses
) -> None:
    maker, reader, _ = (processes.child(tmpfs) for _ in range(3))
    shm_source = source(tmpfs, processes)
    name = make(maker)
    assert holders(observe(shm_source)) == {name: these(maker)}
    reader.do(ATTACH.format(name=name))
    shm_source = source(tmpfs, processes)
    shared = by_path(observe(shm_source))[name]
    assert (shared.kind, shared.size_bytes, shared.holders) == (SegmentKind.PYTHON_SHM, 65536, these(maker, reader))
    maker.do("made.close()")
    assert holders(observe(shm_source)) == {name: these(reader)}
    reader.do("attached.close()")
    shared = by_path(observe(shm_source))[name]
    assert shared.holders is None  # it lost its holders, and nobody looked at all processes since
    assert by_path(observe(source(tmpfs, processes)))[name].holders == frozenset()


def test_an_old_holder_is_found_when_the_known_one_is_gone(tmpfs: Path, processes: ShownProcesses) -> None:
    maker, reader = processes.child(tmpfs), processes.child(tmpfs)
    shm_source = source(tmpfs, processes)
    name = make(maker)
    observe(shm_source)
    reader.do(ATTACH.format(name=name))
    maker.do("made.close()")
    assert holders(observe(shm_source)) == {name: None}
    shm_source.configure(names=(), grace_seconds=0.0)
    assert holders(observe(shm_source)) == {name: these(reader)}


SEMAPHORE = """
import multiprocessing, time
context = multiprocessing.get_context({method!r})
lock = context.Lock()
process = context.Process(target=time.sleep, args=(1000,))
process.lock = lock
process.start()
answer = process.pid
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_a_semaphore_is_held_though_its_maker_maps_it_by_another_deleted_name(
    method: str, tmpfs: Path, processes: ShownProcesses
) -> None:
    maker = processes.child(tmpfs)
    worker = maker.number(SEMAPHORE.format(method=method))
    maker.do(f"while 'sem.mp-' not in open('/proc/{worker}/maps').read(): time.sleep(0.01)")  # it starts on its own
    processes.show(worker)
    (shared,) = observe(source(tmpfs, processes)).segments
    assert (shared.kind, shared.size_bytes) == (SegmentKind.SEMAPHORE, 32)
    assert shared.holders == these(maker, worker)
    maps = Path(f"/proc/{maker.pid}/maps").read_text(encoding="utf-8")
    assert shared.path not in maps
    assert "/dev/shm/sem." in maps
    os.kill(worker, signal.SIGKILL)
    maker.do("process.join()")
    assert observe(source(tmpfs, processes)).segments[0].holders == these(maker)


def test_a_semaphore_of_forked_processes_leaves_no_file(tmpfs: Path, processes: ShownProcesses) -> None:
    maker = processes.child(tmpfs)
    processes.show(maker.number(SEMAPHORE.format(method="fork")))
    assert observe(source(tmpfs, processes)).segments == ()
    assert "/dev/shm/sem." in Path(f"/proc/{maker.pid}/maps").read_text(encoding="utf-8")


WAYS = {
    "open alone": "kept = os.open(path, os.O_RDONLY)",
    "open by O_PATH": "kept = os.open(path, os.O_PATH)",
    "mapped alone": "mapped(path, 3, 1)",
    "mapped read-only": "mapped(path, 1, 1, os.O_RDONLY)",
    "mapped privately": "mapped(path, 1, 2, os.O_RDONLY)",
}


@pytest.mark.parametrize("way", WAYS.values(), ids=WAYS)
def test_a_file_is_held_whichever_way_and_known_to_be_at_the_next_scan(
    way: str, tmpfs: Path, processes: ShownProcesses
) -> None:
    path = tmpfs / "file"
    path.write_bytes(b"x")
    holder, _ = processes.child(), processes.child()
    holder.do(f"{MMAP}path = {str(path)!r}\n{way}")
    shm_source = source(tmpfs, processes)
    for _ in range(3):
        assert holders(observe(shm_source)) == {"file": these(holder)}
    holder.end()
    assert holders(observe(shm_source)) == {"file": None}


def test_a_holder_in_another_mount_namespace_is_found_by_another_path(tmpfs: Path, processes: ShownProcesses) -> None:
    holder = processes.child(tmpfs)
    (tmpfs / "file").touch()
    holder.do("kept = open('/dev/shm/file')")
    assert holders(observe(source(tmpfs, processes))) == {"file": these(holder)}


def test_a_file_of_the_same_inode_in_another_tmpfs_is_another_file(
    tmpfs: Path, tmp_path: Path, processes: ShownProcesses
) -> None:
    with mounted(tmp_path / "container") as other:
        inside = processes.child(other)
        (tmpfs / "psm_e1a2b3c4").touch()
        (other / "psm_e1a2b3c4").touch()
        assert (tmpfs / "psm_e1a2b3c4").stat().st_ino == (other / "psm_e1a2b3c4").stat().st_ino
        inside.do("kept = open('/dev/shm/psm_e1a2b3c4')")
        assert holders(observe(source(tmpfs, processes))) == {"psm_e1a2b3c4": frozenset()}
        assert holders(observe(source(other, processes))) == {"psm_e1a2b3c4": these(inside)}


EXIT = {"x86_64": 60, "aarch64": 93}  # _exit(2) of one thread alone, by its number


def test_a_process_whose_first_thread_has_ended_still_holds(tmpfs: Path, processes: ShownProcesses) -> None:
    path = tmpfs / "file"
    path.touch()
    holder = processes.child()
    code = "import ctypes, threading, time; kept = open({path!r}); libc = ctypes.CDLL(None)\n"
    code += "threading.Thread(target=time.sleep, args=(1000,)).start(); answer = threading.get_native_id()"
    holder.do(code.format(path=str(path)))
    holder.tell(f"libc.syscall({EXIT[os.uname().machine]}, 0)")
    while Path(f"/proc/{holder.pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()[0] != "Z":
        os.sched_yield()
    assert holders(observe(source(tmpfs, processes))) == {"file": these(holder)}
    holder.end()
    assert holders(observe(source(tmpfs, processes))) == {"file": frozenset()}


def test_zombies_hold_nothing(tmpfs: Path, processes: ShownProcesses) -> None:
    (tmpfs / "file").touch()
    parent = processes.child()
    parent.do(f"import os; kept = open({str(tmpfs / 'file')!r}); answer = pid = os.fork()\nif not pid: os._exit(0)")
    zombie = parent.number("kept.close(); os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT); answer = pid")
    processes.show(zombie)
    shared = observe(source(tmpfs, processes))
    assert (holders(shared), shared.uninspected) == ({"file": frozenset()}, 0)


AS_NOBODY = """
import json, os, sys, time
from pathlib import Path
from llmhost.sources.shm.source import ShmSource
os.setgroups([]); os.setgid(65534); os.setuid(65534)
asked = ShmSource(shm=Path(sys.argv[1]), procfs=Path(sys.argv[2]), grace_seconds=0, trust_pid_namespace=True)
for _ in range(2):
    seen = asked.read(time.monotonic() + 10)
holders = {one.path: one.holders for one in seen.segments}
holders = {path: None if held is None else sorted(one.pid for one in held) for path, held in holders.items()}
print(json.dumps([seen.uninspected, holders]))
"""


def test_where_a_process_may_not_be_inspected_nothing_is_called_unheld(tmpfs: Path, processes: ShownProcesses) -> None:
    needs_root()
    (tmpfs / "of-root").touch()
    (tmpfs / "of-hidden").touch()
    root, hidden = processes.child(), processes.child()
    root.do(f"kept = open({str(tmpfs / 'of-root')!r})")
    hidden.do(f"kept = open({str(tmpfs / 'of-hidden')!r})")
    hidden.do("import ctypes, os; os.setgroups([]); os.setgid(65534); os.setuid(65534)")
    hidden.do("ctypes.CDLL(None).prctl(4, 1, 0, 0, 0)")  # PR_SET_DUMPABLE, which the change of user took away
    run = subprocess.run(
        [sys.executable, "-c", AS_NOBODY, str(tmpfs), str(processes.path)],
        env={"PYTHONPATH": str(ROOT / "exporter")},
        capture_output=True,
        check=True,
        timeout=120,
    )
    uninspected, held = json.loads(run.stdout)
    assert uninspected == 2  # root's, and process 1
    assert held == {"of-root": None, "of-hidden": [hidden.pid]}


@pytest.mark.parametrize("trusted", [True, False])
def test_in_a_pid_namespace_of_our_own_files_may_be_held_by_processes_that_we_do_not_see(
    trusted: bool, tmpfs: Path
) -> None:
    needs_root()
    (tmpfs / "file").touch()
    code = AS_NOBODY.replace("os.setgroups([]); os.setgid(65534); os.setuid(65534)", "")
    code = code.replace("trust_pid_namespace=True", f"trust_pid_namespace={trusted}")
    run = subprocess.run(
        [needs("unshare"), "--pid", "--fork", "--mount-proc", sys.executable, "-c", code, str(tmpfs), "/proc"],
        env={"PYTHONPATH": str(ROOT / "exporter"), "PATH": os.environ["PATH"]},
        capture_output=True,
        check=True,
        timeout=120,
    )
    assert json.loads(run.stdout) == ([0, {"file": []}] if trusted else [1, {"file": None}])


def test_where_processes_are_hidden_files_may_be_held_by_them(tmpfs: Path, processes: ShownProcesses) -> None:
    (tmpfs / "file").touch()
    processes.hide(1)
    shared = observe(source(tmpfs, processes))
    assert (holders(shared), shared.uninspected) == ({"file": None}, 1)


def test_a_reused_pid_is_another_process(tmpfs: Path, processes: ShownProcesses, children: Children) -> None:
    (tmpfs / "file").touch()
    first, second = children(), children()
    for child in (first, second):
        child.do(f"kept = open({str(tmpfs / 'file')!r})")
    shown = processes.path / "77"
    shown.symlink_to(f"/proc/{first.pid}")
    shm_source = source(tmpfs, processes)
    (before,) = holders(observe(shm_source))["file"] or frozenset()
    shown.unlink()
    shown.symlink_to(f"/proc/{second.pid}")
    (after,) = holders(observe(shm_source))["file"] or frozenset()
    assert before.pid == after.pid == 77
    assert before.start_ticks == first.id.start_ticks
    assert after.start_ticks == second.id.start_ticks
