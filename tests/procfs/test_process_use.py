"""Who uses a process: real sockets of real processes, and what follows for whether one may be ended."""

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.needs import missing, needs, needs_root
from tests.fakes.shm import Child, process_id
from tests.fakes.values import process

from llmhost.decide.in_use import stays_in_use
from llmhost.model.process import Process, Role
from llmhost.model.process_use import ProcessUse
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.sources.process_use import read
from llmhost.sources.process_use.read import read_process_use

PROC = Path("/proc")
LISTENS = "still listens, and may serve somebody: for a person to end, if nobody uses it"


@pytest.fixture
def child() -> Iterator[Child]:
    """Yield a process that runs what it is told."""
    made = Child()
    made.do("import array, os, socket, tempfile; kept = []")
    yield made
    made.end()


def running(pid: int, **given: Any) -> Process:  # noqa: ANN401
    return process(pid, start=process_id(pid).start_ticks, **given)


def why(asked: Process, *others: Process, everybody: tuple[int, ...] = ()) -> str:
    """Say why a process stays if it is to be ended together with the others; the test's own process is an outsider."""
    seen = [asked, *others, running(os.getpid(), comm="outsider"), *map(running, everybody)]
    return stays_in_use(asked, read_process_use(PROC, [asked, *others], seen))


SEQPACKET, DGRAM = "socket.AF_UNIX, socket.SOCK_SEQPACKET", "socket.AF_UNIX, socket.SOCK_DGRAM"
LISTENERS = {
    "tcp": "kept.append(socket.create_server(('127.0.0.1', 0)))",
    "tcp of every address": "kept.append(socket.create_server(('', 0)))",
    "tcp over ipv6": "kept.append(socket.create_server(('::1', 0), family=socket.AF_INET6))",
    "mptcp": "s = socket.socket(socket.AF_INET, socket.SOCK_STREAM, 262); s.bind(('127.0.0.1', 0)); s.listen()",
    "udp": "s = socket.socket(type=socket.SOCK_DGRAM); s.bind(('127.0.0.1', 0))",
    "udp over ipv6": "s = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM); s.bind(('::1', 0))",
    "udp-lite": "s = socket.socket(socket.AF_INET, socket.SOCK_DGRAM, 136); s.bind(('127.0.0.1', 0))",
    "unix": "s = socket.socket(socket.AF_UNIX); s.bind(tempfile.mkdtemp() + '/control'); s.listen()",
    "unlinked unix": "s = socket.socket(socket.AF_UNIX); s.bind(p := tempfile.mktemp()); s.listen(); os.unlink(p)",
    "abstract unix": "s = socket.socket(socket.AF_UNIX); s.bind('\\0test-%d' % os.getpid()); s.listen()",
    "seqpacket": f"s = socket.socket({SEQPACKET}); s.bind('\\0test-%d' % os.getpid()); s.listen()",
    "datagrams": f"s = socket.socket({DGRAM}); s.bind(tempfile.mkdtemp() + '/log')",
}


@pytest.mark.parametrize("code", LISTENERS.values(), ids=LISTENERS)
def test_a_process_at_which_anybody_may_turn_up_stays(code: str, child: Child) -> None:
    child.do(code)
    for role in (Role.API_SERVER, Role.OTHER):
        assert why(running(child.pid, role=role)) == LISTENS
    assert why(running(child.pid, role=Role.WORKER)) == "", "it listens for the engine's other parts"


NOBODYS = {
    "no socket": "pass",
    "sockets without an address": "kept += map(socket.socket, (socket.AF_INET, socket.AF_INET6, socket.AF_UNIX))",
    "a connection to itself": (
        "s = socket.create_server(('127.0.0.1', 0)); kept.append(socket.create_connection(s.getsockname()));"
        "kept.append(s.accept()[0]); s.close()"
    ),
    "a pair of sockets of its own": "kept += socket.socketpair()",
    "kernel events": "kept.append(socket.socket(socket.AF_NETLINK, socket.SOCK_RAW))",
    "a client of udp": "s = socket.socket(type=socket.SOCK_DGRAM); s.connect(('127.0.0.1', 9))",
}


@pytest.mark.parametrize("code", NOBODYS.values(), ids=NOBODYS)
def test_a_process_that_has_to_do_with_nobody_goes(code: str, child: Child) -> None:
    child.do(code)
    assert why(running(child.pid)) == ""


def test_a_socket_of_a_kind_that_is_not_looked_into_keeps_its_process(child: Child) -> None:
    child.do("s = socket.socket(socket.AF_VSOCK)")
    assert why(running(child.pid)).startswith("has a socket (AF_VSOCK) of which cannot be told whom it serves: for a")


@pytest.mark.parametrize(("path", "what"), [("fuse", "a FUSE file system"), ("net/tun", "a network (tun)")])
def test_what_serves_a_file_system_or_a_network_stays(path: str, what: str, child: Child) -> None:
    needs_root()
    if not Path("/dev", path).exists():
        missing(f"/dev/{path}")
    child.do(f"kept.append(os.open('/dev/{path}', os.O_RDWR))")
    serves = f"serves {what}, which others may use: for a person to end, if nobody uses it"
    assert why(running(child.pid)) == serves
    child.do("os.close(kept.pop())")
    assert why(running(child.pid)) == ""


OWN_SOCKETS = [
    ("/tmp/67e55044-10b1-426f-9247-bb680e5fe0c8", {"engine": "vllm"}, ""),
    ("tmp/tmpab3_d9xz", {"engine": "sglang"}, ""),
    ("pymp-x/listener-a1b2c3", {"argv": ("python3", "-c", "from multiprocessing.forkserver import main; main(5)")}, ""),
    ("\\0listener-47-1", {"argv": ("python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")}, ""),
    ("listener-a1b2c3", {}, LISTENS),  # of any other program
    ("app.sock", {"argv": ("python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main()")}, LISTENS),
    ("67e55044-10b1-426f-9247-bb680e5fe0c8", {"engine": "vllm", "role": Role.API_SERVER}, LISTENS),
]


@pytest.mark.parametrize(("name", "given", "expected"), OWN_SOCKETS)
def test_the_sockets_that_an_engine_and_multiprocessing_make_for_themselves_serve_no_clients(
    name: str, given: dict[str, Any], expected: str, child: Child
) -> None:
    place = repr("\0").strip("'") if name.startswith("\\0") else "%s/"
    path = f"tempfile.mkdtemp() + '/{name.rsplit('/', 1)[-1]}'" if place == "%s/" else f"'{name}-%d' % os.getpid()"
    child.do(f"s = socket.socket(socket.AF_UNIX); s.bind({path}); s.listen()")
    assert why(running(child.pid, **given)) == expected


def connected(child: Child, family: str = "socket.AF_INET", at: str = "('127.0.0.1', 0)") -> socket.socket:
    """Have it accept a connection of ours, and listen no more."""
    child.do(f"s = socket.socket({family}); s.bind({at}); s.listen(); name = s.getsockname()")
    address: Any = child.do("answer = name.decode() if type(name) is bytes else name")
    ours = socket.socket(eval(family))  # noqa: S307
    ours.connect(tuple(address) if isinstance(address, list) else address)
    child.do("kept.append(s.accept()[0]); s.close()")
    return ours


ABSTRACT = "'\\0served-%d' % os.getpid()"


@pytest.mark.parametrize(
    ("family", "at"),
    [
        ("socket.AF_INET", "('127.0.0.1', 0)"),
        ("socket.AF_INET6", "('::1', 0)"),
        ("socket.AF_UNIX", ABSTRACT),
        ("socket.AF_UNIX", "tempfile.mkdtemp() + '/served'"),
    ],
)
def test_what_serves_a_process_outside_stays_until_that_is_gone(family: str, at: str, child: Child) -> None:
    ours = connected(child, family, at)
    part = running(child.pid, role=Role.CORE)
    assert why(part) == (
        f"still connected to {os.getpid()} outsider, and may work for it: for a person to end, if nobody uses it"
    )
    ours.shutdown(socket.SHUT_WR)  # it sends no more, and waits for an answer
    assert why(part).startswith(f"still connected to {os.getpid()} outsider, ")
    ours.close()  # CLOSE_WAIT, or a peer that is gone
    assert why(part) == ""


def test_a_client_over_ipv4_of_a_server_on_both_is_found(child: Child) -> None:
    child.do("s = socket.create_server(('::', 0), family=socket.AF_INET6, dualstack_ipv6=True)")
    port = child.number("answer = s.getsockname()[1]")
    with socket.create_connection(("127.0.0.1", port)):
        child.do("kept.append(s.accept()[0]); s.close()")
        assert why(running(child.pid)).startswith(f"still connected to {os.getpid()} outsider, ")


def test_a_client_of_tcp_stays_with_its_server_outside_and_one_of_a_unix_service_does_not(
    child: Child, tmp_path: Path
) -> None:
    with ExitStack() as held:
        unix = held.enter_context(socket.socket(socket.AF_UNIX))
        unix.bind(str(tmp_path / "bus"))
        unix.listen()
        child.do(f"c = socket.socket(socket.AF_UNIX); c.connect({str(tmp_path / 'bus')!r})")
        assert why(running(child.pid)) == "", "before it is accepted"
        held.enter_context(unix.accept()[0])
        assert why(running(child.pid)) == ""
        # sd-bus names its end, too
        child.do("n = socket.socket(socket.AF_UNIX); n.bind('\\0own-%d' % os.getpid())")
        child.do(f"n.connect({str(tmp_path / 'bus')!r})")
        held.enter_context(unix.accept()[0])
        assert why(running(child.pid)) == ""
        tcp = held.enter_context(socket.create_server(("127.0.0.1", 0)))
        child.do(f"t = socket.create_connection({tcp.getsockname()!r})")
        address = f"127.0.0.1:{tcp.getsockname()[1]}"
        assert why(running(child.pid)).startswith(f"still connected to {address}, "), "nobody has accepted it yet"
        held.enter_context(tcp.accept()[0])
        assert why(running(child.pid)).startswith(f"still connected to {os.getpid()} outsider, ")


def with_pair(kind: socket.SocketKind, *, as_output: bool) -> tuple[socket.socket, "subprocess.Popen[bytes]"]:
    ours, theirs = socket.socketpair(socket.AF_UNIX, kind)
    command = [sys.executable, "-c", "import os; os.write(1, b'1'); input()"]
    with theirs:
        made = subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            stdout=theirs.fileno() if as_output else subprocess.PIPE,
            pass_fds=() if as_output else (theirs.fileno(),),
        )
    assert (ours.recv(1) if as_output else made.stdout.read(1)) == b"1"  # type: ignore[union-attr]
    return ours, made


@pytest.mark.parametrize("kind", [socket.SOCK_STREAM, socket.SOCK_SEQPACKET, socket.SOCK_DGRAM])
def test_a_pair_of_sockets_ties_as_a_pipe_does_but_for_standard_output(kind: socket.SocketKind) -> None:
    for as_output, expected in ((True, ""), (False, f"still connected to {os.getpid()} outsider, ")):
        ours, made = with_pair(kind, as_output=as_output)
        with made, ours:
            found = why(running(made.pid))
            made.kill()
        assert (found == "") if as_output else found.startswith(expected)


def test_what_is_connected_to_one_that_is_asked_about_too_is_tied_to_it(child: Child) -> None:
    server = Child()
    try:
        port = server.number("import socket; s = socket.create_server(('127.0.0.1', 0)); answer = s.getsockname()[1]")
        child.do(f"kept.append(socket.create_connection(('127.0.0.1', {port})))")
        both = [running(child.pid, role=Role.CORE), running(server.pid, role=Role.CORE)]
        tied = []
        for then in ("c = s.accept()[0]", "pass"):  # it waits to be accepted, then it is
            uses = read_process_use(PROC, both, both)
            tied.append([use.value.tied_to for use in uses.values() if isinstance(use, Ok) and not use.value.peers])
            server.do(then)
        assert tied == [[{both[1].id}, frozenset()], [{both[1].id}, {both[0].id}]]
    finally:
        server.end()


HEAD = """
import socket
s = socket.create_server(("10.99.0.2", 5678)); print("up", flush=True); kept = s.accept()[0]; kept.recv(1)
"""
PART = """
import os, socket
from tests.procfs.test_process_use import Role, running, why
part = socket.create_connection(("10.99.0.2", 5678))
print(why(running(os.getpid(), role=Role.CORE)))
"""
# The first is a host of its own; of the second, the head is on the other one, at the end of a wire.
HOSTS = """
set -e
ip link set lo up; ip link add here type veth peer name there; ip addr add 10.99.0.1/24 dev here; ip link set here up
mkfifo "$4/up"
unshare --net sh -c 'echo; read go; ip addr add 10.99.0.2/24 dev there; ip link set there up; exec "$0" -c "$1"' \
    "$1" "$2" <"$4/go" >"$4/up" &
trap "kill $!" EXIT
exec 3>"$4/go" 4<"$4/up"
read up <&4; ip link set there netns $!; echo >&3; read up <&4
"$1" -B -c "$3"
"""


def test_a_part_that_works_for_its_head_on_another_host_stays_and_is_told(tmp_path: Path) -> None:
    needs_root()
    os.mkfifo(tmp_path / "go")
    needs("ip")
    done = subprocess.run(
        [needs("unshare"), "--net", "sh", "-c", HOSTS, "sh", sys.executable, HEAD, PART, str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.stdout == (
        "still connected to 10.99.0.2:5678, and may work for it: for a person to end, if nobody uses it\n"
    ), done.stderr


def test_a_process_of_another_network_namespace_is_unknown_once_it_has_a_socket() -> None:
    needs_root()
    code = "import socket; {}; print(flush=True); input()"
    for made, expected in (("s = socket.socket()", Failed(Cause.NETWORK_NAMESPACE)), ("pass", Ok(ProcessUse()))):
        command = [needs("unshare"), "--net", sys.executable, "-c", code.format(made)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as there:
            assert there.stdout is not None
            there.stdout.readline()
            asked = running(there.pid)
            assert read_process_use(PROC, [asked], [asked])[asked.id] == expected
            there.kill()


@pytest.mark.parametrize("traced", ["the process", "another thread of it"])
def test_a_process_that_is_being_debugged_stays_unless_its_debugger_goes_with_it(traced: str, child: Child) -> None:
    thread = child.number(
        "import threading; t = threading.Thread(target=threading.Event().wait, daemon=True); t.start();"
        "answer = t.native_id"
    )
    attach = """
import ctypes, sys
assert ctypes.CDLL(None, use_errno=True).ptrace(0x4206, int(sys.argv[1]), 0, 0) == 0  # PTRACE_SEIZE
print(flush=True); input()"""
    target = child.pid if traced == "the process" else thread
    command = [sys.executable, "-c", attach, str(target)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as debugger:
        assert debugger.stdout is not None
        debugger.stdout.readline()
        comm = Path(f"/proc/{debugger.pid}/comm").read_text().strip()
        assert why(running(child.pid)) == f"is being debugged by {comm} (pid {debugger.pid})"
        both = [running(child.pid), running(debugger.pid)]
        use = read_process_use(PROC, both, both)[both[0].id]
        assert isinstance(use, Ok)
        assert (use.value.debugger, use.value.tied_to) == ("", frozenset({both[1].id}))
        debugger.kill()
    assert why(running(child.pid)) == ""


AS_NOBODY = """
import os
from tests.procfs.test_process_use import running, why
os.setgroups([])
os.setgid(65534)
os.setuid(65534)  # only now: the checkout, or its Python, may be for root alone
print(why(running({pid})))
"""


def test_a_process_that_has_ended_is_used_by_nobody_and_one_that_may_not_be_looked_into_is_unknown(
    child: Child, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    needs_root()
    child.do("s = socket.create_server(('127.0.0.1', 0))")
    another = process(child.pid, start=process_id(child.pid).start_ticks + 1)
    assert why(another) == ""
    asked = running(child.pid)
    done = subprocess.run(
        [sys.executable, "-B", "-c", AS_NOBODY.format(pid=child.pid)], capture_output=True, text=True, check=False
    )
    assert done.stdout == "whether it listens cannot be told: root can tell\n", done.stderr

    def refused() -> None:
        raise OSError(93, "Protocol not supported")

    child.do("u = socket.socket(socket.AF_UNIX)")
    monkeypatch.setattr(read, "read_unix_sockets", refused)
    told = "whether it is in use cannot be told: the kernel's sockets cannot be read: [Errno 93] Protocol not supported"
    assert why(asked) == told
    os.kill(child.pid, signal.SIGKILL)
