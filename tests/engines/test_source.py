"""Servers are found by the sockets of their own processes, asked at one place, and believed only with their metrics."""

import os
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.engine_servers import Engines, answer_of, cause, failure, process_id
from tests.fakes.needs import needs, needs_root

from llmhost.model.engine import EngineAnswer, EngineSample
from llmhost.model.reading import Cause, Ok
from llmhost.sources.engine import server_client
from llmhost.sources.engine.source import EngineSource

FIVE_TOKENS = Ok((EngineSample(model="m", engine_index="0", generation_tokens=5.0),))


def free_port() -> int:
    with socket.socket() as tried:
        tried.bind(("127.0.0.1", 0))
        port: int = tried.getsockname()[1]
        return port


def has_metrics_at(answer: EngineAnswer, endpoint: str) -> bool:
    assert answer.samples == FIVE_TOKENS
    assert answer.endpoint == endpoint
    return True


def test_a_server_is_found_where_it_listens_whatever_its_arguments_say(engines: Engines) -> None:
    running = engines.run("metrics", arguments="--port PORT")
    answer = engines.answer_of(running.server())
    assert has_metrics_at(answer, f"http://127.0.0.1:{running.ports[0]}")
    assert (answer.unit.name, answer.engine) == ("vllm.service", "vllm")


@pytest.mark.parametrize(
    ("at", "host"),
    [
        ("0.0.0.0", "127.0.0.1"),
        ("::", "[::1]"),
        ("::1", "[::1]"),
        ("127.7.7.7", "127.7.7.7"),
        ("::ffff:127.0.0.2", "127.0.0.2"),
    ],
)
def test_an_address_is_asked_at_where_it_can_be_reached(engines: Engines, at: str, host: str) -> None:
    running = engines.run({"mode": "metrics", "at": at})
    assert has_metrics_at(engines.answer_of(running.server()), f"http://{host}:{running.ports[0]}")


def test_a_workers_sockets_are_not_asked(engines: Engines) -> None:
    running = engines.run({"mode": "metrics", "in": "worker"}, "metrics", {"mode": "hang", "in": "worker"})
    assert has_metrics_at(engines.answer_of(running.server()), f"http://127.0.0.1:{running.ports[1]}")
    assert running.visited() == [1]


def test_of_several_sockets_the_one_with_the_engines_metrics_is_taken_and_remembered(engines: Engines) -> None:
    running = engines.run("status 404 Not Found", "metrics", "raw HTTP/1.1 200 OK\r\n\r\nother 1\n")
    endpoint = f"http://127.0.0.1:{running.ports[1]}"
    assert has_metrics_at(engines.answer_of(running.server()), endpoint)
    before = len(running.visited())
    assert has_metrics_at(engines.answer_of(running.server()), endpoint)
    assert has_metrics_at(engines.answer_of(running.server()), endpoint)
    assert running.visited()[before:] == [1, 1]


def test_a_socket_that_speaks_no_http_is_left_after_a_moment(engines: Engines) -> None:
    running = engines.run("zeromq", "metrics", "zeromq")
    assert has_metrics_at(engines.answer_of(running.server()), f"http://127.0.0.1:{running.ports[1]}")


def test_the_port_of_the_arguments_is_asked_first_and_alone(engines: Engines) -> None:
    port = free_port()
    running = engines.run("zeromq", {"mode": "metrics", "port": port}, "zeromq", arguments=f"--port={port}")
    assert has_metrics_at(engines.answer_of(running.server()), f"http://127.0.0.1:{port}")
    assert running.visited() == [1]


def test_a_server_without_metrics_is_not_probed_all_over_at_each_read(engines: Engines) -> None:
    running = engines.run("status 500 No", "status 404 Not Found", "raw HTTP/1.1 200 OK\r\n\r\nhttp_requests_total 1\n")
    answer = engines.answer_of(running.server())
    assert cause(answer) is Cause.NO_METRICS
    assert answer.endpoint == f"http://127.0.0.1:{running.ports[2]}"
    before = len(running.visited())
    assert cause(engines.answer_of(running.server())) is Cause.NO_METRICS
    assert running.visited()[before:] == [2]


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("status 404 Not Found", Cause.NOT_FOUND),
        ("status 401 Unauthorized", Cause.UNAUTHORIZED),
        ("status 500 No", Cause.HTTP_STATUS),
        ("raw HTTP/1.1 200 OK\r\n\r\nother 1\n", Cause.NO_METRICS),
        ("raw HTTP/1.1 200 OK\r\n\r\nvllm:generation_tokens_total twelve\n", Cause.MALFORMED),
        ("huge", Cause.TOO_LARGE),
    ],
)
def test_what_the_port_of_the_arguments_answers_is_the_servers_answer(
    engines: Engines, mode: str, expected: Cause
) -> None:
    port = free_port()
    running = engines.run("metrics", {"mode": mode, "port": port}, "metrics", arguments=f"--port {port}")
    answer = engines.answer_of(running.server())
    assert (cause(answer), answer.endpoint) == (expected, f"http://127.0.0.1:{port}")
    assert running.visited() == [1]


def test_the_other_sockets_of_a_busy_server_are_not_asked(engines: Engines) -> None:
    port = free_port()
    running = engines.run("metrics", {"mode": "hang", "port": port}, arguments=f"--port {port}")
    busy = EngineSource(procfs=Path("/proc"), timeout_seconds=0.4)
    try:
        for _ in range(2):
            answer = answer_of(busy, running.server())
            assert (cause(answer), answer.endpoint) == (Cause.TIMEOUT, f"http://127.0.0.1:{port}")
    finally:
        busy.close()
    assert running.visited() == [1, 1]


def test_a_socket_that_no_argument_names_is_asked_only_for_a_moment_even_if_alone(
    engines: Engines, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_client, "PROBE_SECONDS", 0.3)
    running = engines.run("hang")
    for _ in range(2):
        answer = engines.answer_of(running.server())
        assert cause(answer) is Cause.TIMEOUT
        assert failure(answer).detail.endswith("did not answer in time")  # a whole fetch is not waited for as long


def test_no_more_than_a_few_sockets_are_tried(engines: Engines) -> None:
    running = engines.run(*["status 500 No"] * (server_client.MOST_PROBED + 2))
    assert cause(engines.answer_of(running.server())) is Cause.HTTP_STATUS
    assert len(set(running.visited())) == len(running.visited()) == server_client.MOST_PROBED


def test_until_a_server_that_starts_listens_where_its_arguments_say_nothing_is_asked(engines: Engines) -> None:
    running = engines.run("metrics", arguments="--port PORT")
    answer = engines.answer_of(running.server(starting=True))
    assert (cause(answer), answer.endpoint) == (Cause.STARTING, "http://127.0.0.1:1")
    assert running.visited() == []
    assert (
        cause(engines.answer_of(engines.run("status 503 Wait", arguments="").server(starting=True))) is Cause.STARTING
    )


def test_api_servers_that_share_a_socket_are_one_server(engines: Engines) -> None:
    running = engines.run({"mode": "metrics", "in": "shared"})
    assert len(running.children) == 2
    processes = tuple(process_id(pid) for pid in (running.pid, *running.children))
    assert has_metrics_at(
        engines.answer_of(running.server(processes=processes)), f"http://127.0.0.1:{running.ports[0]}"
    )
    # those that have lost their launcher are two to be asked, and give one answer
    orphans = [running.server(processes=(process,), argv=("VLLM::APIServer_0",)) for process in processes[1:]]
    assert has_metrics_at(engines.answer_of(orphans[0]), f"http://127.0.0.1:{running.ports[0]}")
    assert len(engines.ask(*orphans)) == 1


def test_two_servers_of_one_unit_are_two_endpoints(engines: Engines) -> None:
    first, second = engines.run("metrics"), engines.run("status 503 Loading")
    answers = engines.ask(first.server(), second.server())
    assert {answer.endpoint: isinstance(answer.samples, Ok) for answer in answers} == {
        f"http://127.0.0.1:{first.ports[0]}": True,
        f"http://127.0.0.1:{second.ports[0]}": False,
    }
    assert [answer.endpoint for answer in answers] == sorted(answer.endpoint for answer in answers)


def test_a_unix_socket_is_opened_through_the_servers_own_root(engines: Engines, tmp_path: Path) -> None:
    path = f"{tmp_path}/s"
    running = engines.run({"mode": "metrics", "at": path}, arguments=f"--uds {path} --port PORT")
    assert has_metrics_at(engines.answer_of(running.server()), f"unix:{path}")
    os.unlink(path)  # noqa: PTH108
    assert cause(engines.answer_of(running.server())) is Cause.REFUSED


def test_a_unix_socket_below_the_working_directory_is_found(
    engines: Engines, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    running = engines.run({"mode": "metrics", "at": f"{tmp_path}/rel"}, arguments="--uds rel")
    monkeypatch.chdir("/")
    assert has_metrics_at(engines.answer_of(running.server()), "unix:rel")


def test_a_server_that_does_not_listen_is_refused_or_still_starting(engines: Engines) -> None:
    running = engines.run(arguments="--port 8123")
    answer = engines.answer_of(running.server())
    assert (cause(answer), answer.endpoint) == (Cause.REFUSED, "http://127.0.0.1:8123")
    assert cause(engines.answer_of(running.server(starting=True))) is Cause.STARTING


def test_503_is_loading_only_while_starting(engines: Engines) -> None:
    running = engines.run("status 503 Service Unavailable")
    assert cause(engines.answer_of(running.server(starting=True))) is Cause.STARTING
    assert cause(engines.answer_of(running.server())) is Cause.HTTP_STATUS


def test_what_has_answered_is_not_starting_any_more(engines: Engines) -> None:
    running = engines.run("metrics")
    url = f"http://127.0.0.1:{running.ports[0]}"
    server = running.server(url=url, starting=True)
    assert engines.answer_of(server).samples == FIVE_TOKENS
    running.end()
    assert cause(engines.answer_of(server)) is Cause.REFUSED
    assert cause(engines.answer_of(replace(server, run="another"))) is Cause.STARTING


def test_a_process_that_has_ended_or_whose_pid_is_anothers_is_not_asked(engines: Engines) -> None:
    running = engines.run("metrics")
    server = running.server()
    (process,) = server.processes
    other = replace(process, start_ticks=process.start_ticks - 1)
    assert failure(engines.answer_of(replace(server, processes=(other,)))).detail == "its process has ended"
    assert running.visited() == []
    assert engines.answer_of(server).samples == FIVE_TOKENS
    running.end()
    assert failure(engines.answer_of(server)).detail == "its process has ended"


def test_a_port_that_another_process_shares_is_not_asked(engines: Engines) -> None:
    first = engines.run("metrics", environment={"ENGINE_REUSEPORT": "1"})
    second = engines.run({"mode": "metrics", "port": first.ports[0]}, environment={"ENGINE_REUSEPORT": "1"})
    for running in (first, second):
        assert (
            failure(engines.answer_of(running.server())).detail
            == "another process listens at the same address and port"
        )
    assert first.visited() == second.visited() == []


def test_a_server_in_another_network_namespace_cannot_be_asked(engines: Engines) -> None:
    needs_root()
    running = engines.run("hang", prefix=(needs("unshare"), "--net"))
    for starting in (False, True):
        answer = engines.answer_of(running.server(starting=starting))
        assert cause(answer) is Cause.NETWORK_NAMESPACE
        assert failure(answer).detail == "it is in another network namespace; configure its URL"


IN_A_NETWORK_OF_OUR_OWN = """
import fcntl, os, socket, struct, sys
from pathlib import Path
from tests.fakes.engine_servers import Engines, answer_of
from llmhost.sources.engine.source import EngineSource

with socket.socket() as asked:  # netdevice(7): SIOCSIFFLAGS with IFF_UP
    fcntl.ioctl(asked, 0x8914, struct.pack("16sH14x", b"lo", 1))
Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").write_text("1")
engines = Engines(Path(sys.argv[1]))
running = engines.run({"mode": "metrics", "at": "::"})
procfs = Path(sys.argv[1], "proc")  # whose process 1 may be looked at
procfs.mkdir()
for name, target in (("self", "self"), ("1", sys.argv[2]), (str(running.pid), str(running.pid))):
    (procfs / name).symlink_to(f"/proc/{target}")
source = EngineSource(procfs=procfs)
for given in ({}, *({"url": f"http://{host}:1"} for host in ("localhost", "127.0.0.1", "[::1]", "192.0.2.1"))):
    answer = answer_of(source, running.server(**given))
    print(answer.endpoint.replace(str(running.ports[0]), "PORT"), getattr(answer.samples, "cause", "ok"))
source.close()
engines.end()
"""


def test_in_a_network_of_our_own_loopback_says_nothing_and_without_ipv6_what_listens_on_all_is_asked_by_ipv4(
    tmp_path: Path,
) -> None:
    needs_root()
    asked = subprocess.run(
        [needs("unshare"), "--net", sys.executable, "-c", IN_A_NETWORK_OF_OUR_OWN, str(tmp_path), str(os.getpid())],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert asked.stdout.splitlines() == [
        "http://127.0.0.1:PORT ok",
        "http://localhost:1 network_namespace",
        "http://127.0.0.1:1 network_namespace",
        "http://[::1]:1 network_namespace",
        "http://192.0.2.1:1 refused",  # of no loopback: it is as it is
    ], asked.stderr


AS_NOBODY = """
import os, sys, time
from dataclasses import replace
from pathlib import PosixPath
from tests.fakes.engine_servers import PROC, process_id
from llmhost.model.engine import EngineServer
from llmhost.model.ids import ProcessId, UnitId
from llmhost.sources.engine.source import EngineSource

def ask(server):
    source = EngineSource(procfs=PROC)
    source.set_servers((server,))
    (answer,) = source.read(time.monotonic() + 5).answers
    source.close()
    print(answer.endpoint, type(answer.samples).__name__, getattr(answer.samples, "cause", ""))

server = {server}
ask(server)  # with all the privilege that there is, and so that everything is imported
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(65534, 65534, 65534)
ask(server)
read, write = os.pipe()
child = os.fork()
if child == 0:
    os.close(write)
    os._exit(len(os.read(read, 1)))
ask(replace(server, processes=(process_id(child),)))
"""


def test_without_privilege_the_port_of_the_arguments_is_asked_if_the_same_user_listens_there(engines: Engines) -> None:
    needs_root()
    port = free_port()
    running = engines.run({"mode": "metrics", "port": port}, "metrics", arguments=f"--port {port}")
    answered = subprocess.run(
        [sys.executable, "-c", AS_NOBODY.replace("{server}", repr(running.server()))],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=False,
    )
    endpoint = f"http://127.0.0.1:{port}"
    expected = [f"{endpoint} Ok ", f"{endpoint} Ok ", f"{endpoint} Failed refused"]  # the last is another user's
    assert answered.stdout.splitlines() == expected, answered.stderr
    assert running.visited() == [0, 0]
