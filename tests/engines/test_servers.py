"""The servers of a unit, by its processes, their roles and its configuration."""

from pathlib import PurePosixPath
from typing import Any

import pytest
from tests.fakes.values import in_service, process, settings, table, unit

from llmhost.config.schema import EngineConfig
from llmhost.derive.servers import engine_servers
from llmhost.model.engine import EngineServer
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process, Role
from llmhost.model.unit import Unit, UnitsReport

OLD = 10_000.0  # ticks from which on a server is young
SERVE = ("/opt/vllm/bin/vllm", "serve", "m", "--port", "8001")


def front(pid: int, start: int = 5000, /, **given: Any) -> Process:  # noqa: ANN401 - whatever field a test cares for
    values: dict[str, Any] = {"engine": "vllm", "role": Role.API_SERVER, "argv": SERVE}
    return process(pid, in_service("vllm.service"), start, **(values | given))


def servers(*processes: Process, units: tuple[Unit, ...] = (), configured: tuple[EngineConfig, ...] = ()) -> Any:  # noqa: ANN401
    report = UnitsReport(systemd_version="252", units=units or (unit("vllm.service", main_pid=10),))
    return engine_servers(table(processes), report, configured, young_from_ticks=OLD)


def pids(found: tuple[EngineServer, ...]) -> list[list[int]]:
    return [[process.pid for process in server.processes] for server in found]


def test_an_api_server_is_a_server_with_its_own_command_line() -> None:
    found = servers(
        front(10),
        front(11, ppid=10, role=Role.CORE, argv=("VLLM::EngineCore",)),
        front(12, ppid=11, role=Role.WORKER, argv=("VLLM::Worker_TP0",)),
        process(13, in_service("vllm.service"), role=Role.TRACKER, ppid=10),
        units=(unit("vllm.service", main_pid=10, invocation_id="i1"),),
    )
    assert found == (
        EngineServer(
            unit=UnitId("vllm.service"), engine="vllm", processes=(ProcessId(10, 5000),), argv=SERVE, run="i1"
        ),
    )


def test_api_servers_of_a_launcher_are_one_server_with_the_launchers_command_line() -> None:
    found = servers(
        front(20, 6000, ppid=10, argv=("VLLM::APIServer_1",)),
        front(12, 6000, ppid=10, argv=("VLLM::APIServer_0",)),
        front(10, role=Role.LAUNCHER, argv=(*SERVE, "--api-server-count", "2")),
        front(11, 5500, ppid=10, role=Role.COORDINATOR, argv=("VLLM::DPCoordinator",)),
    )
    assert pids(found) == [[10, 12, 20]]
    assert found[0].argv == (*SERVE, "--api-server-count", "2")


def test_independent_servers_of_one_unit_are_several() -> None:
    shell = process(10, in_service("vllm.service"), 4000, argv=("bash", "run-two"))
    found = servers(shell, front(30, 6000, ppid=10), front(20, 5000, ppid=10))
    assert pids(found) == [[20], [30]]


def test_a_server_that_another_engines_server_started_is_one_of_its_own() -> None:
    other = front(20, 6000, ppid=10, engine="sglang", argv=("python", "-m", "sglang.launch_server"))
    found = servers(front(10), other)
    assert [(server.engine, server.processes[0].pid) for server in found] == [("vllm", 10), ("sglang", 20)]


def test_the_models_of_a_llama_server_router_are_asked_in_its_place() -> None:
    router = front(10, engine="llamacpp", argv=("/opt/llama-server", "--models-dir", "/m"))
    model = process(
        20,
        in_service("vllm.service"),
        start=6000,
        ppid=10,
        engine="llamacpp",
        role=Role.WORKER,
        argv=("/opt/llama-server", "--port", "41001"),
    )
    assert pids(servers(router)) == [[10]]
    assert [(server.processes[0].pid, server.argv[2]) for server in servers(router, model)] == [(20, "41001")]


def test_a_headless_engine_has_no_server() -> None:
    assert servers(front(10, role=Role.LAUNCHER, argv=("vllm", "serve", "m", "--headless"))) == ()


@pytest.mark.parametrize("engine", ["tgi", "ollama", "triton", "acme"])
def test_an_engine_whose_metrics_we_cannot_read_is_not_asked(engine: str) -> None:
    assert servers(front(10, engine=engine)) == ()


@pytest.mark.parametrize(
    ("active", "sub"),
    [
        ("inactive", "dead"),
        ("failed", "failed"),
        ("activating", "auto-restart"),
        ("activating", "auto-restart-queued"),
        ("activating", "start-pre"),
    ],
)
def test_a_unit_that_is_down_or_not_started_yet_has_none_though_an_old_server_still_listens(
    active: str, sub: str
) -> None:
    assert servers(front(10), units=(unit("vllm.service", active, sub),)) == ()


def test_a_server_left_over_from_the_run_before_is_not_the_units() -> None:
    assert pids(servers(front(8, 4999), front(10, 5000))) == [[10]]
    assert pids(servers(front(8, 4999), front(9, 5001), units=(unit("vllm.service", main_pid=0),))) == [[8], [9]]


def test_zombies_and_other_units_servers_are_not_asked() -> None:
    other = process(11, in_service("sglang.service"), engine="sglang", role=Role.API_SERVER, argv=SERVE)
    assert pids(servers(front(10), front(12, state="Z"), other)) == [[10]]


def test_a_server_is_starting_while_its_unit_is_or_while_it_is_young() -> None:
    def starting(start: int, active: str = "active") -> bool:
        (server,) = servers(front(10, start), units=(unit("vllm.service", active, "start", main_pid=10),))
        return bool(server.starting)

    assert starting(10_000)
    assert not starting(9_999)
    assert starting(9_999, "activating")
    assert not starting(9_999, "deactivating")


def test_where_a_unit_is_configured_that_is_all_that_is_asked() -> None:
    configured = (
        EngineConfig(unit="vllm.service", url="http://127.0.0.1:1", token_file=PurePosixPath("/t")),
        EngineConfig(unit="vllm.service", url="http://127.0.0.1:2"),
        EngineConfig(unit="nowhere.service", url="http://127.0.0.1:3"),
    )
    found = servers(front(10, 10_500), configured=configured)
    assert [(server.url, server.token_file, server.engine, server.argv, server.starting) for server in found] == [
        ("http://127.0.0.1:1", PurePosixPath("/t"), "vllm", (), True),
        ("http://127.0.0.1:2", None, "vllm", (), True),
    ]
    assert pids(found) == [[10], [10]]
    renamed = unit("vllm.service", main_pid=10, aliases=("a.service", "nowhere.service"))
    assert [server.url for server in servers(front(10), configured=configured[2:], units=(renamed,))] == [
        "http://127.0.0.1:3"
    ]
    assert servers(configured=configured, units=(unit("vllm.service", "failed", "failed"),)) == ()


def test_the_engine_of_a_configured_unit_is_that_of_its_processes_or_of_its_file_or_unknown() -> None:
    configured = (EngineConfig(unit="vllm.service", url="http://127.0.0.1:1"),)

    def engine(*processes: Process, exec_start: str = "/bin/true") -> str:
        units = (unit("vllm.service", main_pid=10, settings=settings(exec_start)),)
        (server,) = servers(*processes, units=units, configured=configured)
        return str(server.engine)

    assert engine(front(10, engine="sglang"), exec_start="vllm serve m") == "sglang"
    assert engine(exec_start="docker run --rm vllm/vllm-openai:v0.12 --model m") == "vllm"
    assert engine() == ""


def test_parents_that_go_round_in_circles_end() -> None:
    found = servers(front(20, ppid=21), front(21, ppid=20))
    assert sorted(pid for group in pids(found) for pid in group) == [20, 21]


def test_servers_are_given_by_unit() -> None:
    units = (unit("vllm-b.service"), unit("vllm-a.service"))
    processes = [
        process(pid, in_service(name), engine="vllm", role=Role.API_SERVER, argv=SERVE)
        for pid, name in ((10, "vllm-b.service"), (20, "vllm-a.service"))
    ]
    assert pids(servers(*processes, units=units)) == [[20], [10]]
