"""The engine that an ExecStart= line will run, and its arguments."""

import pytest

from llmhost.model.engine_arguments import EngineArguments, parse_engine_arguments
from llmhost.model.engine_command import engine_command, is_engine_command

SHELL_SCRIPT = """set -e
source /opt/vllm/bin/activate  # vllm serve old
export HF_HOME=/data PORT=8000
if [ -f /etc/go ]; then
  exec vllm serve m \\
    --port "$PORT"
fi
"""

ENGINES: dict[tuple[str, ...], str] = {
    ("/opt/vllm/bin/vllm", "serve", "m"): "vllm",
    ("/opt/vllm/bin/python", "-m", "vllm.entrypoints.openai.api_server"): "vllm",
    ("${PYTHON}", "-m", "vllm.entrypoints.openai.api_server"): "vllm",
    ("/usr/bin/env", "vllm", "serve", "m"): "vllm",
    ("/usr/bin/env", "-u", "FOO", "HF_HOME=/data", "A=b", "vllm", "serve", "m"): "vllm",
    ("/usr/bin/env", "-i", "--", "A=b", "vllm", "serve", "m"): "vllm",
    ("/usr/bin/env", "-S", "vllm serve m"): "vllm",
    ("/bin/bash", "-c", "source x && exec vllm serve m"): "vllm",
    ("/bin/bash", "-lc", "vllm serve m 2>&1 | tee /var/log/vllm.log"): "vllm",
    ("/bin/bash", "-o", "pipefail", "-ec", "HF_HOME=/data nohup vllm serve m >log 2>&1 &"): "vllm",
    ("/bin/sh", "-c", "cd /srv; while ! vllm serve m; do sleep 1; done"): "vllm",
    ("/bin/sh", "-c", SHELL_SCRIPT): "vllm",
    ("/bin/bash", "-c", "echo 'a; b' ; (ulimit -n 65535; python3 -m sglang.launch_server --tp 8)"): "sglang",
    ("/bin/bash", "/opt/wrapped/bin/vllm", "serve", "m"): "vllm",
    ("/bin/bash", "-e", "--", "/opt/wrapped/bin/vllm", "serve", "m"): "vllm",
    ("numactl", "--cpunodebind=0", "-m", "0", "vllm", "serve", "m"): "vllm",
    ("numactl", "-N", "0", "--", "vllm", "serve", "m"): "vllm",
    ("taskset", "-c", "0-31", "nice", "-n", "5", "vllm", "serve", "m"): "vllm",
    ("chrt", "-f", "50", "llama-server", "-m", "x"): "llamacpp",
    ("timeout", "-k", "5", "3600", "vllm", "serve", "m"): "vllm",
    ("flock", "-n", "/run/lock/gpu", "vllm", "serve", "m"): "vllm",
    ("sudo", "-u", "llm", "-E", "vllm", "serve", "m"): "vllm",
    ("runuser", "-u", "llm", "--", "vllm", "serve", "m"): "vllm",
    ("setpriv", "--reuid=1000", "--clear-groups", "vllm", "serve", "m"): "vllm",
    ("/usr/bin/tini", "--", "vllm", "serve", "m"): "vllm",
    ("uv", "run", "--with", "vllm", "vllm", "serve", "m"): "vllm",
    ("/home/ada/.local/bin/uv", "tool", "run", "vllm", "serve", "m"): "vllm",
    ("uvx", "--python", "3.12", "vllm", "serve", "m"): "vllm",
    ("conda", "run", "-n", "vllm", "--no-capture-output", "vllm", "serve", "m"): "vllm",
    ("poetry", "run", "python", "-m", "sglang.launch_server"): "sglang",
    ("nsys", "profile", "-o", "/tmp/x", "vllm", "serve", "m"): "vllm",
    ("docker", "run", "--rm", "--name", "a", "--gpus", "all", "vllm/vllm-openai:v0.9.0", "--model", "m"): "vllm",
    ("docker", "run", "registry.local:5000/mirror/vllm/vllm-openai@sha256:00", "--model", "m"): "vllm",
    ("podman", "run", "docker://docker.io/lmsysorg/sglang:latest", "python3", "-m", "sglang.launch_server"): "sglang",
    ("docker", "run", "--entrypoint", "python3", "my/image", "vllm", "serve", "m"): "vllm",
    ("docker", "run", "ghcr.io/huggingface/text-generation-inference:3.0", "--model-id", "m"): "tgi",
    ("docker", "run", "-v", "ollama:/home/ada/.ollama", "ollama/ollama"): "ollama",
    ("/usr/local/bin/ollama", "serve"): "ollama",
}

NONE: list[tuple[str, ...]] = [
    (),
    ("",),
    ("less", "vllm.log"),
    ("journalctl", "-u", "vllm", "serve"),
    ("grep", "vllm", "serve"),
    ("timeout", "5", "grep", "vllm", "serve"),
    ("/bin/bash", "-c", "grep vllm serve"),
    ("/bin/bash", "-c", "echo vllm serve m"),
    ("/bin/bash", "-c", "# vllm serve m"),
    ("/bin/bash", "-c", 'logger "vllm serve m"'),
    ("/bin/bash", "-c", "curl localhost:8000 >vllm serve"),
    ("/bin/bash", "-c", "an 'unfinished quote; vllm"),
    ("/bin/bash", "-c"),
    ("/bin/bash", "/opt/start.sh", "vllm", "serve"),
    ("/usr/bin/env",),
    ("env", "-u"),
    ("taskset", "-p", "4711"),
    ("systemd-run", "--unit=x", "vllm", "serve", "m"),
    ("docker", "logs", "-f", "vllm"),
    ("docker", "run", "-v", "/srv/vllm/vllm-openai:/data", "nginx"),
    ("docker", "run", "nginx", "/vllm/vllm-openai"),
    ("docker", "pull", "vllm/vllm-openai"),
    ("conda", "install", "vllm", "serve"),
    ("python3", "-m", "pip", "install", "vllm"),
    ("vllm", "bench", "serve"),
    ("nice",) * 100 + ("vllm", "serve"),
]


@pytest.mark.parametrize(("argv", "engine"), ENGINES.items(), ids=map(" ".join, ENGINES))
def test_an_engine_is_found_behind_what_starts_it(argv: tuple[str, ...], engine: str) -> None:
    assert is_engine_command(argv) == engine


@pytest.mark.parametrize("argv", NONE, ids=map(" ".join, NONE))
def test_a_command_that_only_mentions_an_engine_is_none(argv: tuple[str, ...]) -> None:
    assert is_engine_command(argv) == ""


def test_the_engines_own_command_line_comes_without_its_wrappers() -> None:
    argv = ("/usr/bin/env", "A=b", "/bin/sh", "-c", "exec numactl -N 0 vllm serve m -tp 8")
    assert engine_command(argv) == ("vllm", ("vllm", "serve", "m", "-tp", "8"))


ARGUMENTS = {
    ("vllm", ""): EngineArguments(),
    ("vllm", "--gpu-memory-utilization 0.85"): EngineArguments(utilization_given=True, utilization=0.85),
    ("vllm", "--gpu-memory-utilization=0.85"): EngineArguments(utilization_given=True, utilization=0.85),
    ("vllm", "--gpu_memory_utilization .5"): EngineArguments(utilization_given=True, utilization=0.5),
    ("vllm", "--device-memory-utilization 0.7"): EngineArguments(utilization_given=True, utilization=0.7),
    ("vllm", "--gpu-memory-util 0.7"): EngineArguments(utilization_given=True, utilization=0.7),
    ("vllm", "--gpu-memory-utilization 0.9 --gpu-memory-utilization 0.6"): EngineArguments(
        utilization_given=True, utilization=0.6
    ),
    ("vllm", "--gpu-memory-utilization 1"): EngineArguments(utilization_given=True, utilization=1.0),
    ("vllm", "--gpu-memory-utilization high"): EngineArguments(utilization_given=True, utilization=None),
    ("vllm", "--gpu-memory-utilization 0"): EngineArguments(utilization_given=True, utilization=None),
    ("vllm", "--gpu-memory-utilization 90"): EngineArguments(utilization_given=True, utilization=None),
    ("vllm", "--gpu-memory-utilization= 0.9"): EngineArguments(utilization_given=True, utilization=None),
    ("vllm", "--gpu-memory-utilization nan"): EngineArguments(utilization_given=True, utilization=None),
    ("vllm", "--gpu-memory-utilization"): EngineArguments(utilization_given=True, utilization=None),
    ("vllm", "-tp 8 -pp 2 -dp 4"): EngineArguments(tensor_parallel=8, pipeline_parallel=2, data_parallel=4),
    ("vllm", "-tp=8"): EngineArguments(tensor_parallel=8),
    ("vllm", "--tensor_parallel_size 4 --pipeline-parallel-size=2"): EngineArguments(
        tensor_parallel=4, pipeline_parallel=2
    ),
    ("vllm", "--tensor-parallel 4"): EngineArguments(tensor_parallel=4),
    ("vllm", "--tensor-parallel-size ${TP}"): EngineArguments(tensor_parallel=None),
    ("vllm", "-tp 0"): EngineArguments(tensor_parallel=None),
    ("vllm", "--data-parallel-size 16 --data-parallel-size-local 8"): EngineArguments(data_parallel=8),
    ("vllm", "--data-parallel-size 16 --data-parallel-rank 3"): EngineArguments(data_parallel=1),
    ("vllm", "--data-parallel-size-local 2 -dp 2 -dpp 29500"): EngineArguments(data_parallel=2),
    ("vllm", "-tp 8 --nnodes 2"): EngineArguments(tensor_parallel=None),
    ("vllm", "-tp 8 --nnodes 1"): EngineArguments(tensor_parallel=8),
    ("vllm", "-tp 4 -pcp 2"): EngineArguments(tensor_parallel=None),
    ("vllm", "--config /etc/vllm.yaml --port 8001"): EngineArguments(has_config_file=True, port=8001),
    ("vllm", "--config=/etc/vllm.yaml"): EngineArguments(has_config_file=True),
    ("vllm", "--port http"): EngineArguments(port=None),
    ("vllm", "--mem-fraction-static 0.8"): EngineArguments(),
    ("sglang", "--mem-fraction-static 0.8 --tp 8"): EngineArguments(
        utilization_given=True, utilization=0.8, tensor_parallel=8
    ),
    ("sglang", "--tp-size 4 --pp-size 2 --dp-size 2"): EngineArguments(
        tensor_parallel=4, pipeline_parallel=2, data_parallel=2
    ),
    ("sglang", "--tensor-parallel-size=4 --dp=2"): EngineArguments(tensor_parallel=4, data_parallel=2),
    ("sglang", "--tp 8 --dp 8 --enable-dp-attention"): EngineArguments(tensor_parallel=8, data_parallel=1),
    ("sglang", "--tp 16 --nnodes 2 --node-rank 0"): EngineArguments(tensor_parallel=None),
    ("sglang", "--num-gpus 4 --tp-size 2"): EngineArguments(tensor_parallel=4),
    ("sglang", "--num-gpus ${N} --tp-size 2"): EngineArguments(tensor_parallel=None),
    ("sglang", "--mem_fraction_static 0.8"): EngineArguments(),
    ("sglang", "--gpu-memory-utilization 0.8"): EngineArguments(),
    ("ollama", "--gpu-memory-utilization 0.8 -tp 8"): EngineArguments(),
}


@pytest.mark.parametrize(("case", "expected"), ARGUMENTS.items(), ids=map(" ".join, ARGUMENTS))
def test_arguments_are_read_as_the_engine_reads_them(case: tuple[str, str], expected: EngineArguments) -> None:
    engine, arguments = case
    command = {"vllm": "vllm serve m", "sglang": "python3 -m sglang.launch_server --model-path m"}.get(engine, engine)
    assert parse_engine_arguments(engine, (*command.split(), *arguments.split())) == expected


def test_arguments_are_read_through_wrappers_and_behind_an_image() -> None:
    shell = ("/bin/bash", "-c", "numactl -N 0 vllm serve m --gpu-memory-utilization 0.8 -tp 2; sleep 1")
    assert parse_engine_arguments("vllm", shell) == EngineArguments(
        utilization_given=True, utilization=0.8, tensor_parallel=2
    )
    image = ("docker", "run", "-e", "A=b", "vllm/vllm-openai", "--model", "m", "--gpu-memory-utilization", "0.8")
    assert parse_engine_arguments("vllm", image) == EngineArguments(utilization_given=True, utilization=0.8)


def test_the_arguments_of_the_wrapper_are_not_the_engines() -> None:
    argv = ("docker", "run", "--config", "/home/ada/.docker", "--port", "1", "vllm/vllm-openai", "--model", "m")
    assert parse_engine_arguments("vllm", argv) == EngineArguments()
