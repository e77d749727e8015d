"""The peer of a connection is verified before anything is sent to it."""

import os
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import cast

import pytest
from tests.fakes.engine_servers import PROC, Engines, cause, failure, process_id
from tests.fakes.needs import needs_root

from llmhost.model.engine import EngineSample, EngineServer
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Ok
from llmhost.sources.base import SourceError
from llmhost.sources.engine.discover import expected_endpoint
from llmhost.sources.engine.peer import UnixListener, parse_unix_listeners, require_trusted_port

FIVE_TOKENS = Ok((EngineSample(model="m", engine_index="0", generation_tokens=5.0),))


def unix_listener(path: str) -> socket.socket:
    made = socket.socket(socket.AF_UNIX)
    made.bind(path)
    made.listen(4)
    made.settimeout(0.0)
    return made


def received(listener: socket.socket) -> bytes | None:
    """Give the data of the first client, and None when there is none."""
    try:
        connection, _ = listener.accept()
    except BlockingIOError:
        return None
    with connection:
        connection.settimeout(5.0)
        return connection.recv(4096)


def test_unix_sockets_that_listen_are_read_with_their_paths() -> None:
    rows = [
        "Num       RefCount Protocol Flags    Type St Inode Path\n",
        "0000000000000000: 00000002 00000000 00010000 0001 01 12345 /run/a b.sock\n",
        "ffff8881234567c0: 00000002 00000000 00010000 0001 01   678 rel\n",
        "0000000000000000: 00000003 00000000 00000000 0001 03 22222 /run/a b.sock\n",  # a connection
        "0000000000000000: 00000002 00000000 00010000 0001 01 33333\n",
        "and the rest of a path\n",
    ]
    assert list(parse_unix_listeners(iter(rows))) == [UnixListener("/run/a b.sock", 12345), UnixListener("rel", 678)]


def test_a_unix_socket_of_another_process_is_not_connected_to(engines: Engines, tmp_path: Path) -> None:
    path = f"{tmp_path}/another.sock"
    with unix_listener(path) as another:
        answer = engines.answer_of(engines.run("metrics", arguments=f"--uds {path}").server())
        assert cause(answer) is Cause.UNKNOWN
        assert failure(answer).detail == "another process listens at the socket of its arguments"
        assert received(another) is None


def test_a_unix_socket_that_took_the_place_of_the_servers_is_sent_nothing(engines: Engines, tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    running = engines.run({"mode": "metrics", "at": path}, arguments=f"--uds {path}")
    assert engines.answer_of(running.server()).samples == FIVE_TOKENS
    with unix_listener(f"{tmp_path}/another") as another:
        Path(f"{tmp_path}/another").rename(path)
        answer = engines.answer_of(running.server())
        assert failure(answer).detail == "another process listens at the socket of its arguments"
        assert received(another) == b""


def test_api_servers_of_a_launcher_may_have_made_the_unix_socket_listen(engines: Engines, tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    running = engines.run({"mode": "metrics", "at": path, "in": "shared"}, arguments=f"--uds {path}")
    ended = replace(process_id(running.children[0]), start_ticks=1)
    server = running.server(processes=(process_id(running.pid), ended, process_id(running.children[1])))
    assert engines.answer_of(server).samples == FIVE_TOKENS


def test_a_server_that_does_not_listen_at_its_unix_socket_yet_is_starting(engines: Engines, tmp_path: Path) -> None:
    server = engines.run("metrics", arguments=f"--uds {tmp_path}/s").server()
    assert cause(engines.answer_of(server)) is Cause.REFUSED
    assert cause(engines.answer_of(replace(server, starting=True))) is Cause.STARTING


@pytest.mark.parametrize(
    ("path", "endpoint"),
    [
        ("/run/a b\n\x1b[31mc.sock", "unix:/run/a b\\n\\x1b[31mc.sock"),
        ("/run/\udcff", "unix:/run/\\udcff"),
        ("/" + "a" * 100_000, "unix:/" + "a" * 106),
    ],
)
def test_a_unix_socket_is_shown_in_one_short_printable_line(path: str, endpoint: str) -> None:
    server = EngineServer(unit=UnitId("vllm.service"), engine="vllm", argv=("vllm", "serve", "--uds", path))
    assert expected_endpoint(server) == endpoint


AS_NOBODY = """
import os, socket
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
FAMILY = socket.AF_INET6 if ":" in "ADDRESS" else socket.AF_INET
listener = socket.create_server(("ADDRESS", 0), family=FAMILY, dualstack_ipv6="ADDRESS" == "::")
print(listener.getsockname()[1], flush=True)
while True:
    connection, _ = listener.accept()
    said = b""
    while not said.endswith(b"\\r\\n\\r\\n"):
        data = connection.recv(4096)
        if not data:
            break
        said += data
    print(b"sesame" in said, len(said) > 0, flush=True)
    connection.sendall(b"HTTP/1.1 404 Not Found\\r\\n\\r\\n")
    connection.close()
"""


@pytest.fixture
def other_user_listens() -> Iterator[Callable[[str], "subprocess.Popen[str]"]]:
    """Start a server of another user at an address; its lines: its port, then for each connection what it received."""
    needs_root()
    started: list[subprocess.Popen[str]] = []

    def start(address: str) -> "subprocess.Popen[str]":
        program = AS_NOBODY.replace("ADDRESS", address)
        started.append(subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def line_of(process: "subprocess.Popen[str]") -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize(
    ("listens", "host"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.1", "localhost"),
        ("0.0.0.0", "127.0.0.5"),
        ("::", "127.0.0.1"),
        ("::1", "[::1]"),
        ("::", "[::ffff:127.0.0.1]"),
    ],
)
def test_a_token_goes_to_no_other_user_of_this_host(
    engines: Engines,
    tmp_path: Path,
    other_user_listens: Callable[[str], "subprocess.Popen[str]"],
    listens: str,
    host: str,
) -> None:
    server_process = other_user_listens(listens)
    url = f"http://{host}:{line_of(server_process)}"
    (tmp_path / "token").write_text("sesame")
    server = EngineServer(unit=UnitId("vllm.service"), engine="vllm", url=url, token_file=tmp_path / "token")
    for processes in ((), (process_id(os.getpid()),)):
        answer = engines.answer_of(replace(server, processes=processes))
        assert cause(answer) is Cause.NO_PERMISSION
        detail = "no token is sent without TLS: user 65534 listens there, not root or the unit's user"
        assert failure(answer).detail == detail
        assert line_of(server_process) == "False False"
    assert cause(engines.answer_of(replace(server, token_file=None))) is Cause.NOT_FOUND  # there is no secret to keep
    assert line_of(server_process) == "False True"
    of_the_unit = replace(server, processes=(process_id(server_process.pid),))
    assert cause(engines.answer_of(of_the_unit)) is Cause.NOT_FOUND
    assert line_of(server_process) == "True True"


class Connected:
    """A connection to another host, or to an address of this one that the test cannot give it."""

    def __init__(self, here: str, there: str, port: int) -> None:
        self.getsockname = lambda: (here, 50_000)
        self.getpeername = lambda: (there, port)


def test_what_is_this_host_goes_by_both_ends_of_a_connection(
    other_user_listens: Callable[[str], "subprocess.Popen[str]"],
) -> None:
    port = int(line_of(other_user_listens("0.0.0.0")))

    def required(here: str, there: str, port: int = port) -> str:
        try:
            require_trusted_port(PROC, cast("socket.socket", Connected(here, there, port)), ())
        except SourceError as error:
            return f"{error.cause}: {error.detail}"
        return "sent"

    other_user = "user 65534 listens there, not root or the unit's user"
    assert required("10.0.0.5", "10.0.0.6") == "sent"
    assert required("10.0.0.5", "10.0.0.5") == f"no_permission: no token is sent without TLS: {other_user}"
    assert required("10.0.0.5", "127.0.0.1") == f"no_permission: no token is sent without TLS: {other_user}"


def test_a_token_is_not_sent_without_a_visible_listener() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        connection = socket.create_connection(listener.getsockname())
        accepted, _ = listener.accept()
        require_trusted_port(PROC, connection, (process_id(os.getpid()),))
    with connection, accepted, pytest.raises(SourceError, match="nobody is seen to listen there"):
        require_trusted_port(PROC, connection, (process_id(os.getpid()),))
