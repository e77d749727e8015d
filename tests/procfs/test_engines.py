"""The engine and role of a process. Titles are those in the sources of vLLM 0.6 to 0.32 and SGLang."""

from pathlib import Path

import pytest
from tests.fakes.procfs import write_proc

from llmhost.model.engines import classify, is_spawn_main, tracker_fd
from llmhost.model.process import Role
from llmhost.sources.procfs import ProcfsSource

API_SERVER, LAUNCHER, COORDINATOR = Role.API_SERVER, Role.LAUNCHER, Role.COORDINATOR
CORE, WORKER, TRACKER, OTHER = Role.CORE, Role.WORKER, Role.TRACKER, Role.OTHER
NOBODYS = ("", OTHER)
SPAWN = "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=56, pipe_handle=55)"

TITLES = {
    "VLLM::EngineCore": ("vllm", CORE),
    "VLLM::EngineCore_DP0": ("vllm", CORE),
    "VLLM::EngineCoreProc_0": ("vllm", CORE),
    "VLLM::StageEngineCoreProc_DP0": ("vllm", CORE),
    "VLLM::Worker": ("vllm", WORKER),
    "VLLM::Worker_TP0": ("vllm", WORKER),
    "VLLM::Worker_TP0_DP0": ("vllm", WORKER),
    "VLLM::Worker_DP0_PP0_TP0_EP0": ("vllm", WORKER),
    "VLLM::APIServer_0": ("vllm", API_SERVER),
    "VLLM::APIServer_DP3": ("vllm", API_SERVER),
    "VLLM::DPCoordinator": ("vllm", COORDINATOR),
    "VLLM::DPEngineCore_1": ("vllm", CORE),
    "VLLM::StageEngineCoreProc_stage1_replica0_DP0": ("vllm", CORE),
    "VLLM::StageCoreProc_Stage0": ("vllm", CORE),
    "VLLM::HeadlessExecutor_DP1": ("vllm", COORDINATOR),
    "VLLM::Evictor": ("vllm", OTHER),
    "vLLM-Omni::DiffusionWorker": ("vllm", WORKER),
    "vLLM-Omni::DiffusionWorker-3": ("vllm", WORKER),
    "vLLM-Omni::DiffusionWorker_DP0_TP1": ("vllm", WORKER),
    "VLLM::SomethingNew_0": ("vllm", OTHER),
    "ray::RayWorkerWrapper.execute_method": ("vllm", WORKER),
    "ray::RayWorkerProc": ("vllm", WORKER),
    "ray::DPMoEEngineCoreActor.run": ("vllm", CORE),
    # VLLM_PROCESS_NAME_PREFIX
    "vllm::Worker": ("vllm", WORKER),
    "myteam::EngineCore": ("vllm", CORE),
    "myteam::EngineCore_DP1": ("vllm", CORE),
    "myteam::Worker_TP1": ("vllm", WORKER),
    "my-team.prod::APIServer_1": ("vllm", API_SERVER),
    "myteam::DPCoordinator": ("vllm", COORDINATOR),
    "sglang::scheduler": ("sglang", WORKER),
    "sglang::scheduler_DP0_TP0_EP0": ("sglang", WORKER),
    "sglang::scheduler_TP3": ("sglang", WORKER),
    "sglang::gpu_worker_TP0_PP0": ("sglang", WORKER),
    "sglang::semi_pd_standalone_scheduler": ("sglang", WORKER),
    "sglang::data_parallel_controller": ("sglang", COORDINATOR),
    "sglang::detokenizer": ("sglang", OTHER),
    "sglang::tokenizer_worker:4711": ("sglang", API_SERVER),
    "sglang::model_runner_TP0_EP0": ("sglang", WORKER),
    "sglang::mm_proc_svc_gpu0": ("sglang", WORKER),
    "sglang::mm_host": ("sglang", WORKER),
    "sglang::server": ("sglang", API_SERVER),
    "sglang::router": ("sglang", OTHER),
    "sgl_diffusion::scheduler_TP0": ("sglang", WORKER),
    "sgl_diffusion::scheduler_U0": ("sglang", WORKER),
    "sgl_diffusion::partial_1": ("sglang", WORKER),
    "sglang::something_new": ("sglang", OTHER),
    # other people's titles
    "myteam::Worker": NOBODYS,
    "myteam::EngineCoreful": NOBODYS,
    "ray::IDLE": NOBODYS,
    "ray::ServeReplica:default:App": NOBODYS,
    "nginx: worker process": NOBODYS,
    "postgres: VLLM::EngineCore": NOBODYS,
}


@pytest.mark.parametrize(("title", "expected"), TITLES.items(), ids=TITLES)
def test_a_title_gives_engine_and_role(title: str, expected: tuple[str, Role]) -> None:
    assert classify((title,), "python3") == expected


@pytest.mark.parametrize(
    ("title", "expected"),
    [(title, expected) for title, expected in TITLES.items() if title.startswith(("VLLM", "vLLM", "sgl"))],
)
def test_the_fifteen_bytes_of_a_title_that_comm_keeps_give_the_same(title: str, expected: tuple[str, Role]) -> None:
    assert classify((), title[:15]) == expected


@pytest.mark.parametrize("padding", [" ", "          ", "\0\0", " \0 \0"])
def test_padding_behind_a_title_is_not_part_of_it(padding: str) -> None:
    assert classify(("myteam::DPCoordinator" + padding,), "myteam::DPCoord") == ("vllm", COORDINATOR)


COMMANDS = {
    "/opt/vllm/bin/python3 /opt/vllm/bin/vllm serve /models/m --port 8000": ("vllm", API_SERVER),
    "vllm serve m": ("vllm", API_SERVER),
    "/usr/bin/python3.12 -u -X dev -W ignore /opt/vllm/bin/vllm serve m": ("vllm", API_SERVER),
    "python -m vllm.entrypoints.openai.api_server --model m": ("vllm", API_SERVER),
    "/opt/venv/bin/python3.11 -Im vllm.entrypoints.openai.api_server": ("vllm", API_SERVER),
    "python3 -mvllm.entrypoints.api_server": ("vllm", API_SERVER),
    "python3.13t -m vllm.entrypoints.cli.main serve m": ("vllm", API_SERVER),
    "python3 /src/vllm/entrypoints/openai/api_server.py --model m": ("vllm", API_SERVER),
    "vllm serve m --headless": ("vllm", LAUNCHER),
    "vllm serve m --api-server-count 4": ("vllm", LAUNCHER),
    "vllm serve m --api_server_count=4": ("vllm", LAUNCHER),
    "vllm serve m -asc 2": ("vllm", LAUNCHER),
    "vllm serve m --api-server-count 1": ("vllm", API_SERVER),
    "/opt/vllm/lib/python3.12/site-packages/vllm/vllm-rs frontend --port 8000": ("vllm", API_SERVER),
    "python3 --check-hash-based-pycs never -m sglang.launch_server": ("sglang", API_SERVER),
    "python3 -m sglang.launch_server --model-path m --tp 8": ("sglang", API_SERVER),
    "/usr/bin/python3 /usr/local/bin/sglang serve --model-path m": ("sglang", API_SERVER),
    "python3 -m sglang.multimodal_gen.runtime.launch_server --num-gpus 2": ("sglang", API_SERVER),
    "python3 -m sglang.multimodal_gen.runtime.entrypoints.cli.main serve": ("sglang", API_SERVER),
    "python3 -m sglang.multimodal_gen.runtime.entrypoints.cli.main generate": NOBODYS,
    "/usr/local/bin/llama-server -m /m.gguf": ("llamacpp", API_SERVER),
    "python3 -m llama_cpp.server --model /m.gguf": ("llamacpp", API_SERVER),
    "text-generation-launcher --model-id m": ("tgi", LAUNCHER),
    "text-generation-router --port 80": ("tgi", API_SERVER),
    "/app/text-generation-router-llamacpp --port 80": ("tgi", API_SERVER),
    "/usr/bin/python3 /opt/conda/bin/text-generation-server serve m": ("tgi", WORKER),
    "/usr/local/bin/ollama serve": ("ollama", API_SERVER),
    "/usr/local/bin/ollama runner --model /m --port 40001": ("ollama", WORKER),
    "/tmp/ollama1/runners/cuda_v12/ollama_llama_server --model /m": ("ollama", WORKER),
    "tritonserver --model-repository=/models": ("triton", API_SERVER),
    # not a server, and not an engine
    "/opt/vllm/bin/python3 /opt/vllm/bin/vllm bench serve --model m": NOBODYS,
    "vllm chat": NOBODYS,
    "vllm": NOBODYS,
    "ollama run llama3": NOBODYS,
    "less vllm.log": NOBODYS,
    "grep vllm serve": NOBODYS,
    "vi vllm serve": NOBODYS,
    "python3 train.py -m vllm.entrypoints.openai.api_server": NOBODYS,
    "python3 my_vllm_client.py": NOBODYS,
    "python3 -m sglang_router.launch_router": NOBODYS,
    "/bin/bash -c vllm serve m": NOBODYS,
    "uv run vllm serve m": NOBODYS,
    "python3": NOBODYS,
    "python3 -m": NOBODYS,
    "python3 -X": NOBODYS,
}


@pytest.mark.parametrize(("command", "expected"), COMMANDS.items(), ids=COMMANDS)
def test_a_command_line_gives_engine_and_role(command: str, expected: tuple[str, Role]) -> None:
    argv = tuple(command.split())
    assert classify(argv, argv[0].rsplit("/", 1)[-1][:15]) == expected


TRACKERS = {
    ("/opt/vllm/bin/python3", "-B", "-c", "from multiprocessing.resource_tracker import main;main(31)"): 31,
    ("python3", "-c", "from multiprocessing.semaphore_tracker import main;main(7)"): 7,
    ("python3", "-s", "-c", "from joblib.externals.loky.backend.resource_tracker import main; main(3, False)"): 3,
    ("/opt/app/embedded", "-c", "from multiprocess.resource_tracker import main;main(12)"): 12,
}


@pytest.mark.parametrize(("argv", "descriptor"), TRACKERS.items())
def test_a_resource_tracker_is_known_by_its_code(argv: tuple[str, ...], descriptor: int) -> None:
    assert classify(argv, "python3") == ("", TRACKER)
    assert tracker_fd(argv) == descriptor


def test_a_program_that_only_names_the_trackers_code_is_none() -> None:
    argv = ("grep", "from multiprocessing.resource_tracker import main;main(31)", "file")
    assert classify(argv, "grep") == NOBODYS
    assert tracker_fd(argv) is None


@pytest.mark.parametrize("glued", ["", "_TP0"])
def test_a_child_without_a_title_is_of_no_engine_but_recognized(glued: str) -> None:
    argv = ("python3", "-B", "-c", SPAWN, "--multiprocessing-fork" + glued)
    assert classify(argv, "python3") == NOBODYS
    assert is_spawn_main(argv)


def test_a_title_that_only_comm_bears_is_believed() -> None:
    """Set with prctl(PR_SET_NAME), as where setproctitle found no room for it."""
    assert classify(("python3", "-c", SPAWN), "VLLM::Worker_TP") == ("vllm", WORKER)


def test_a_forkserver_is_of_no_engine() -> None:
    argv = ("python3", "-c", "from multiprocessing.forkserver import main; main(5, 6, ['__main__'], **{})")
    assert classify(argv, "python3") == NOBODYS
    assert not is_spawn_main(argv)


def test_a_name_in_comm_alone_is_believed_only_where_there_is_no_command_line() -> None:
    assert classify((), "vllm") == ("vllm", API_SERVER)
    assert classify((), "text-generation") == ("tgi", OTHER)
    assert classify(("/opt/vllm/bin/python3", "/opt/vllm/bin/vllm", "chat"), "vllm") == NOBODYS


def roles(tmp_path: Path, *commands: tuple[int, int, str, str]) -> dict[int, Role]:
    """Roles of processes, each given as pid, ppid, comm and command line."""
    write_proc(tmp_path, [{"pid": p, "ppid": q, "comm": c, "argv": line.split()} for p, q, c, line in commands])
    table = ProcfsSource(procfs=tmp_path, trust_pid_namespace=False).read(float("inf"))
    return {pid: process.role for pid, process in table.by_pid.items() if pid != 1}


def test_a_server_whose_children_serve_is_their_launcher_though_its_arguments_do_not_say_so(tmp_path: Path) -> None:
    server = (10, 1, "vllm", "/opt/vllm/bin/python3 /opt/vllm/bin/vllm serve m -dp 2")
    assert roles(tmp_path, server, (11, 10, "VLLM::APIServer", "VLLM::APIServer_0")) == {10: LAUNCHER, 11: API_SERVER}


def test_a_server_whose_child_is_vllms_rust_frontend_is_its_launcher(tmp_path: Path) -> None:
    server = (10, 1, "vllm", "/opt/vllm/bin/python3 /opt/vllm/bin/vllm serve m")
    assert roles(tmp_path, server, (11, 10, "vllm-rs", "/opt/vllm/vllm-rs frontend")) == {10: LAUNCHER, 11: API_SERVER}


def test_a_fork_that_bears_its_servers_command_line_is_a_worker(tmp_path: Path) -> None:
    command = "python3 -m vllm.entrypoints.openai.api_server --model m -tp 2"
    tree = roles(tmp_path, (10, 1, "python3", command), (11, 10, "python3", command), (12, 11, "python3", command))
    assert tree == {10: API_SERVER, 11: WORKER, 12: WORKER}


def test_a_server_started_by_llama_server_in_router_mode_is_a_worker(tmp_path: Path) -> None:
    router = (10, 1, "llama-server", "llama-server --port 8080")
    assert roles(tmp_path, router, (11, 10, "llama-server", "llama-server -m a.gguf")) == {10: API_SERVER, 11: WORKER}


def test_the_parts_of_tgi_keep_their_roles(tmp_path: Path) -> None:
    tree = roles(
        tmp_path,
        (10, 1, "text-generation", "text-generation-launcher --model-id m"),
        (11, 10, "text-generation", "/usr/bin/python3 /opt/conda/bin/text-generation-server serve m"),
        (12, 10, "text-generation", "text-generation-router --port 80"),
    )
    assert tree == {10: LAUNCHER, 11: WORKER, 12: API_SERVER}


def test_a_server_started_by_another_engines_server_stays_one(tmp_path: Path) -> None:
    tree = roles(tmp_path, (10, 1, "ollama", "ollama serve"), (11, 10, "llama-server", "llama-server -m a.gguf"))
    assert tree == {10: API_SERVER, 11: API_SERVER}
