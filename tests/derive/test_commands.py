"""What a unit's command says: its engine, its share of memory and its GPUs, by ExecStart= and the environment."""

import random
import shlex
from collections.abc import Mapping
from typing import Any

import pytest
from tests.fakes.values import GIB, gpu, in_service, process, snapshot, unit

from llmhost.config.schema import Config, Policy
from llmhost.derive.command import environment_of, servers_of, starts_an_engine
from llmhost.derive.facts import UnitFacts, derive
from llmhost.derive.requirements import Requirements, needed_ratio, requirements_of
from llmhost.model.engine_command import is_engine_command
from llmhost.model.history.history import History, LearntGpus
from llmhost.model.ids import GpuUuid
from llmhost.model.process import Process, Role
from llmhost.model.reading import Failed, Ok
from llmhost.model.unit import Unit, UnitSettings

FOUR = [gpu(index) for index in range(4)]
FILE: Mapping[str, Any] = {"environment_files": ("/etc/vllm/secrets.env",)}
DEFAULT = 0.92


def with_command(command: str, environment: Mapping[str, str] | None = None, **given: Any) -> Unit:  # noqa: ANN401
    settings = UnitSettings(
        exec_start=(tuple(shlex.split(command)),), environment=tuple((environment or {}).items()), **given
    )
    return unit(active="activating", sub="auto-restart", settings=settings)


def required(watched: Unit, count: int = 4, learnt: tuple[int, ...] = ()) -> Requirements:
    known = {watched.id: LearntGpus(invocation_id="a", uuids=tuple(GpuUuid(f"GPU-{index}") for index in learnt))}
    history = History(gpu_sets=known if learnt else {})
    return requirements_of(watched, (), snapshot(gpus=FOUR[:count], processes=[]), Config(), history)


def share(watched: Unit) -> float | None:
    """Its need as a share of a GPU, None where it is not known."""
    (run,) = required(watched).runs
    ratio = needed_ratio(run.engine, run.arguments, Policy())
    return ratio.value if isinstance(ratio, Ok) else None


def gpus(watched: Unit, count: int = 4, learnt: tuple[int, ...] = ()) -> str | None:
    """Its GPU set as indexes, None where it is not known."""
    found = required(watched, count, learnt).gpus
    return ",".join(uuid.removeprefix("GPU-") for uuid in found.value) if isinstance(found, Ok) else None


UNEXPANDED = [
    "vllm serve $MODEL $ARGS",
    "vllm serve m ${ARGS}",
    "vllm serve ${ARGS}",
    "vllm $ARGS",
    "vllm serve m --gpu-memory-utilization 0.5 $ARGS",
    "vllm serve m --gpu-memory-utilization ${SHARE}",
    "vllm serve m --enforce-eager ${ARGS}",
    "vllm serve m --port $PORT",
    "bash -c 'exec vllm serve m $ARGS'",
    "bash -c 'exec vllm serve m \"$@\"' _ $ARGS",
    "bash -c 'exec vllm serve m $(cat /etc/vllm.args)'",
    "bash -c 'exec vllm serve m `cat /etc/vllm.args`'",
    "bash -c 'ARGS=$(cat /etc/vllm.args); exec vllm serve m $ARGS'",
    "bash -c 'ARGS=(--port 1); exec vllm serve m \"${ARGS[@]}\"'",
    "bash -c 'read ARGS </etc/vllm.args; exec vllm serve m $ARGS'",
    "bash -c 'while read ARGS; do vllm serve m $ARGS; done'",
    "bash -c 'source /etc/vllm.env && exec vllm serve m $ARGS'",
    "bash -c '. /etc/vllm.env; exec vllm serve m ${ARGS:-}'",
    "bash -c 'eval \"$SETUP\"; exec vllm serve m $ARGS'",
    "bash -c 'serve() { vllm serve m \"$@\"; }; serve -tp 2'",
    "bash -c 'if test -f a; then vllm serve a -tp 2; else vllm serve b --gpu-memory-utilization 0.3; fi'",
    "docker run --gpus all vllm/vllm-openai $ARGS",
    "env -S 'vllm serve m $ARGS' ${ARGS}",
    "vllm serve m --data-par 2 --gpu-mem $SHARE",
]


@pytest.mark.parametrize("command", UNEXPANDED)
def test_a_word_that_is_not_expanded_leaves_unknown_what_it_could_hold(command: str) -> None:
    watched = with_command(command, **FILE)
    assert required(watched).engine == "vllm"
    assert share(watched) is None
    assert gpus(watched) is None


@pytest.mark.parametrize(
    ("command", "environment", "expected"),
    [
        ("vllm serve $MODEL $ARGS", {"MODEL": "m", "ARGS": "--gpu-memory-utilization 0.4 -tp 2"}, (0.4, "0,1")),
        ("bash -c 'exec vllm serve m $ARGS'", {"ARGS": "--gpu-memory-utilization 0.4 -tp 2"}, (0.4, "0,1")),
        ("bash -c 'exec vllm serve m ${ARGS}'", {"ARGS": "--gpu-memory-utilization 0.4 -tp 2"}, (0.4, "0,1")),
        ('bash -c \'exec vllm serve "$M" -tp "$TP"\'', {"M": "a b", "TP": "4"}, (DEFAULT, "0,1,2,3")),
        ("bash -c 'S=0.3; exec vllm serve m --gpu-memory-utilization $S'", {}, (0.3, "0")),
        ("bash -c 'exec vllm serve m \"$@\"' _ -tp 2 --gpu-memory-utilization 0.7", {}, (0.7, "0,1")),
        ("bash -c 'exec vllm serve \"m$@\"' _ -tp 2", {}, (None, None)),
        ("bash -c ': ${TP:=2}; exec vllm serve m -tp $TP'", {"TP": ""}, (DEFAULT, "0,1")),
        ("bash -c ': ${TP:=2}; exec vllm serve m -tp $TP'", {"TP": "4"}, (DEFAULT, "0,1,2,3")),
        ("bash -c 'exec vllm serve m ${ARGS-x -tp 2}'", {"ARGS": ""}, (DEFAULT, "0")),
        ("bash -c 'set m -tp 2; exec vllm serve \"$@\"'", {}, (DEFAULT, "0,1")),
        ("bash -c 'let TP=TP+1; exec vllm serve m -tp $TP'", {"TP": "1"}, (None, None)),
        ("bash -c 'test -f a && exec vllm serve m -tp 2; exec vllm serve m -tp 4'", {}, (None, None)),
        ("bash -c 'cd /srv && exec vllm serve m -tp 2'", {}, (DEFAULT, "0,1")),
        ("bash -c 'eval \"vllm serve m -tp 2\"'", {}, (DEFAULT, "0,1")),
        ("bash -c 'cat >/run/x <<EOF\nvllm serve old -tp 4\nEOF\nexec vllm serve m'", {}, (DEFAULT, "0")),
        ("vllm serve m --api-key ${KEY} -tp 2", {"KEY": "k"}, (DEFAULT, "0,1")),
        ("vllm serve $ARGS --gpu-memory-utilization 0.5 -tp 2", {}, (0.5, None)),  # pipeline stages may be in ARGS
        ("vllm serve m --gpu-mem 0.5 --tensor 4", {}, (0.5, "0,1,2,3")),
        ("vllm serve m --gpu_mem=0.5 --pipeline-p 2", {}, (0.5, "0,1")),
        ("vllm serve m --data-parallel 2", {}, (DEFAULT, None)),  # of several options the beginning
        ("vllm serve m --device cpu", {}, (DEFAULT, "")),
        ("vllm serve m", {"VLLM_CPU_KVCACHE_SPACE": "16"}, (DEFAULT, "")),
        ("docker run -e VLLM_CPU_OMP_THREADS_BIND=all vllm/vllm-openai --model m", {}, (DEFAULT, "")),
        ("docker run public.ecr.aws/q9t5s3a7/vllm-cpu-release-repo:v0.12 --model m", {}, (DEFAULT, "")),
        ("llama-server -m m.gguf --device none", {}, (None, "")),
        ("sglang serve --model-path m --mem-fraction-static 0.8 --base-gpu-id 2 --tp 2", {}, (None, "2,3")),
        ("sglang serve --model-path m --tp 2 --gpu-id-step 2", {}, (None, "0,2")),
        ("sglang serve --model-path m --base 1", {}, (None, "1")),
        ("vllm serve m -tp 2 --device-ids 3,1", {}, (DEFAULT, "3,1")),
    ],
)
def test_what_the_unit_itself_says_is_expanded_and_read(
    command: str, environment: Mapping[str, str], expected: tuple[float | None, str | None]
) -> None:
    watched = with_command(command, environment)
    assert (share(watched), gpus(watched)) == expected


def test_a_value_that_is_not_known_leaves_the_rest_as_it_is() -> None:
    watched = with_command("vllm serve m --api-key ${KEY} --gpu-memory-utilization 0.8 -tp 2 --port=${PORT}", **FILE)
    assert share(watched) == 0.8
    assert gpus(watched, learnt=(2, 3)) == "2,3"


def test_a_variable_that_nobody_sets_is_empty_where_the_managers_own_are_known() -> None:
    command = "vllm serve m $ARGS --port ${PORT}"
    assert share(with_command(command, manager_environment=())) == DEFAULT
    assert share(with_command(command, manager_environment=(("ARGS", "--gpu-memory-utilization 0.4"),))) == 0.4
    assert share(with_command(command)) is None
    assert share(with_command("bash -c 'vllm serve m --port ${PORT:-8000}'", manager_environment=())) == DEFAULT


@pytest.mark.parametrize(
    ("command", "given", "expected"),
    [
        # the command's own assignment goes over every environment
        ("/usr/bin/env CUDA_VISIBLE_DEVICES=3 vllm serve m", FILE, "3"),
        ("bash -c 'CUDA_VISIBLE_DEVICES=3 exec vllm serve m'", FILE, "3"),
        ("bash -c 'source /etc/vllm.env && export CUDA_VISIBLE_DEVICES=3 && exec vllm serve m'", {}, "3"),
        ("sudo -u llm CUDA_VISIBLE_DEVICES=3 vllm serve m", FILE, "3"),
        ("apptainer exec --nv --env CUDA_VISIBLE_DEVICES=3 i.sif vllm serve m", FILE, "3"),
        ("env -i CUDA_VISIBLE_DEVICES=2,3 vllm serve m -tp 2", FILE, "2,3"),
        ("env -u CUDA_VISIBLE_DEVICES vllm serve m", {"environment": {"CUDA_VISIBLE_DEVICES": "3"}}, "0"),
        ("bash -c 'export CUDA_VISIBLE_DEVICES; CUDA_VISIBLE_DEVICES=3; exec vllm serve m'", {}, "3"),
        ("bash -c 'command export CUDA_VISIBLE_DEVICES=3; exec vllm serve m'", {}, "3"),
        ("apptainer exec --nv i.sif vllm serve m", {"environment": {"APPTAINERENV_CUDA_VISIBLE_DEVICES": "3"}}, "3"),
        ("bash -c 'exec -c vllm serve m'", {"environment": {"CUDA_VISIBLE_DEVICES": "3"}}, "0"),
        ("sudo -E vllm serve m", {"environment": {"CUDA_VISIBLE_DEVICES": "3"}}, "3"),
        ("bash -c 'end() { kill 0; }; trap end EXIT; vllm serve m'", {}, "0"),
        # what may set it
        ("bash -c 'run() { vllm serve m; }; export CUDA_VISIBLE_DEVICES=3; run'", {}, None),
        ("bash -c 'choose() { export CUDA_VISIBLE_DEVICES=3; }; test -f a && choose; vllm serve m'", {}, None),
        ("bash -c 'function load { . /etc/env; }; load; vllm serve m'", {}, None),
        ("sudo --preserve-env=PATH vllm serve m", {"environment": {"CUDA_VISIBLE_DEVICES": "3"}}, None),
        ("bash -c 'command . /etc/vllm.env; exec vllm serve m'", {}, None),
        ("bash -c '$(cat /etc/setup); exec vllm serve m'", {}, None),
        ("bash -c '$(cat /opt/python)/bin/check; exec vllm serve m'", {}, "0"),
        ("env ${X} vllm serve m", {"environment": {"CUDA_VISIBLE_DEVICES": "3"}}, None),
        ("sudo -E A=b x${X} vllm serve m", {"environment": {"CUDA_VISIBLE_DEVICES": "3"}}, None),
        ("pipenv run vllm serve m", {}, None),
        ("podman run --gpus all -e 'CUDA_*' vllm/vllm-openai --model m", {}, None),
        ("vllm serve m", FILE, None),
        ("bash -c 'source /etc/vllm.env && exec vllm serve m'", {}, None),
        ("bash -lc 'exec vllm serve m'", {}, None),
        ("su - llm -c 'vllm serve m'", {}, None),
        ("sudo -u llm vllm serve m", {"environment": {"CUDA_VISIBLE_DEVICES": "3"}}, None),
        ("bash -c 'test -f x && export CUDA_VISIBLE_DEVICES=1; exec vllm serve m'", {}, None),
        ("bash -c 'for i in 0 1; do CUDA_VISIBLE_DEVICES=$i vllm serve m & done; wait'", {}, None),
        ("chpst -e /etc/vllm.d vllm serve m", {}, None),
        ("bash -c '$WRAPPER vllm serve m'", {}, None),
        ("docker run --gpus all --env-file /etc/vllm.env vllm/vllm-openai --model m", {}, None),
        ("vllm serve m", {"pass_environment": ("CUDA_VISIBLE_DEVICES",)}, None),
        ("vllm serve m", {"pam_name": "login"}, None),
        # what does not
        ("bash -c 'source /opt/v/bin/activate && exec vllm serve m'", {}, "0"),
        ("su llm -c 'vllm serve m'", {}, "0"),
        ("bash -c '(export CUDA_VISIBLE_DEVICES=3); exec vllm serve m'", {}, "0"),
        # systemd's order
        ("vllm serve m", {"manager_environment": (("CUDA_VISIBLE_DEVICES", "3"),)}, "3"),
        (
            "vllm serve m",
            {
                "manager_environment": (("CUDA_VISIBLE_DEVICES", "3"),),
                "pass_environment": ("CUDA_VISIBLE_DEVICES",),
                "environment": {"CUDA_VISIBLE_DEVICES": "2"},
            },
            "2",
        ),
        (
            "vllm serve m",
            {"environment": {"CUDA_VISIBLE_DEVICES": "2"}, "unset_environment": ("CUDA_VISIBLE_DEVICES",)},
            "0",
        ),
        # a container's GPUs are counted anew in it
        ("docker run --gpus '\"device=2,3\"' -e CUDA_VISIBLE_DEVICES=0,1 vllm/vllm-openai --model m -tp 2", {}, "2,3"),
        ("docker run --gpus '\"device=2,3\"' -e CUDA_VISIBLE_DEVICES=1 vllm/vllm-openai --model m", {}, "3"),
        ("docker run --gpus device=GPU-3 vllm/vllm-openai --model m", {}, "3"),
        ("docker run --gpus 2 vllm/vllm-openai --model m -tp 2", {}, "0,1"),
        ("docker run --gpus all vllm/vllm-openai --model m", FILE, "0"),
        ("docker run --gpus all -e CUDA_VISIBLE_DEVICES vllm/vllm-openai --model m", FILE, None),
        ("podman run --device nvidia.com/gpu=3 -it vllm/vllm-openai --model m", {}, "3"),
        ("docker run --runtime=nvidia -e NVIDIA_VISIBLE_DEVICES=1,2 vllm/vllm-openai -tp 2", {}, "1,2"),
        ("docker run --gpus '\"device=2,3\"' --privileged vllm/vllm-openai --model m", {}, None),
        ("docker run --gpus $GPUS vllm/vllm-openai --model m", {}, None),
        ("docker run $OPTIONS vllm/vllm-openai --model m", {}, None),
        ("docker run vllm/vllm-openai --model m", {}, None),
        ("docker run --gpus all -e CUDA_VISIBLE_DEVICES=2 my/image serve", {}, "2"),
        ("docker run --gpus all my/image serve", {}, None),
        # the first of those in sight, as many as the engine takes
        ("vllm serve m", {"environment": {"CUDA_VISIBLE_DEVICES": "2,3"}}, "2"),
        ("vllm serve m -pp 2", {"environment": {"CUDA_VISIBLE_DEVICES": "3,1,2"}}, "3,1"),
        ("sglang serve --base-gpu-id 1", {"environment": {"CUDA_VISIBLE_DEVICES": "2,3"}}, "3"),
        ("vllm serve m --config c.yml", {"environment": {"CUDA_VISIBLE_DEVICES": "2,3"}}, None),
        ("llama-server -m m.gguf", {"environment": {"CUDA_VISIBLE_DEVICES": "2,3"}}, "2,3"),
        # what this host does not have is no fault of it
        ("vllm serve m -tp 8 --distributed-executor-backend ray", {}, None),
        ("vllm serve m -tp 2", {"environment": {"CUDA_VISIBLE_DEVICES": "3"}}, None),
        ("vllm serve m", {"environment": {"CUDA_VISIBLE_DEVICES": "7"}}, None),
        # of an unknown program nothing is known
        ("/opt/run.sh", {}, None),
        ("/opt/run.sh", {"environment": {"CUDA_VISIBLE_DEVICES": "2,3"}}, "2,3"),
    ],
)
def test_who_says_which_gpus_a_unit_uses(command: str, given: Mapping[str, Any], expected: str | None) -> None:
    watched = with_command(command, **given)
    assert gpus(watched) == expected
    found = required(watched).gpus
    assert not isinstance(found, Failed) or found.cause == "unknown"


def test_where_the_number_is_not_known_what_was_learnt_of_the_visible_ones_counts() -> None:
    visible = {"CUDA_VISIBLE_DEVICES": "2,3"}
    assert gpus(with_command("vllm serve m --config c.yml", visible), learnt=(3,)) == "3"
    assert gpus(with_command("vllm serve m --config c.yml", visible), learnt=(0,)) is None
    assert gpus(with_command("vllm serve m", visible), learnt=(3,)) == "2"


@pytest.mark.parametrize(
    "command",
    [
        "uv --directory /srv run vllm serve m",
        "uv run --env-file .env vllm serve m",
        "ray symmetric-run --address h:6379 --min-nodes 2 -- vllm serve m -tp 8",
        "su - llm -c 'vllm serve m'",
        "su -s /bin/bash llm -c 'exec vllm serve m'",
        "runuser -l llm -c 'vllm serve m'",
        "sudo -iu llm vllm serve m",
        "flock -n /run/lock/gpu -c 'vllm serve m'",
        "opentelemetry-instrument --service_name llm vllm serve m",
        "ip netns exec llm vllm serve m",
        "numactl $NUMA vllm serve m",
        "taskset $CPUS vllm serve m",
        "docker --host unix:///run/d.sock run --rm -it --gpus all --entrypoint vllm my/image serve m",
        'podman run --entrypoint \'["vllm", "serve"]\' my/image m',
        "docker run --gpus all registry.redhat.io/rhaiis/vllm-cuda-rhel9:3.2 --model m",
        "docker run --gpus all vllm/vllm-openai:${TAG} --model m",
        "docker run --gpus all nvcr.io/nvidia/vllm:25.09-py3 vllm serve m",
        "${PYTHON} -m vllm.entrypoints.openai.api_server",
    ],
)
def test_vllm_is_found_behind_more_runners_and_wrappers(command: str) -> None:
    assert required(with_command(command)).engine == "vllm"
    assert starts_an_engine(shlex.split(command))


def test_other_engines_are_found() -> None:
    assert is_engine_command(shlex.split("/usr/local/bin/llama serve -m q4.gguf --metrics")) == "llamacpp"
    assert is_engine_command(shlex.split("docker run --gpus all nvcr.io/nim/meta/llama-3.1-8b-instruct:1.8")) == "nim"
    for none in ("llama cli -m q4.gguf", "command -v vllm serve", "bash -c 'case $1 in llama-server) true;; esac'"):
        assert is_engine_command(shlex.split(none)) == ""


TWO = "vllm serve a --gpu-memory-utilization 0.55 & vllm serve b --gpu-memory-utilization 0.35 --port 8001 & wait -n"


def two_servers(*processes: Process) -> UnitFacts:
    watched = with_command(f"bash -c '{TWO}'")
    found = derive(snapshot(gpus=FOUR[:1], processes=processes, units=[watched]), Config(), History()).units
    assert isinstance(found, Ok)
    return found.value[0]


def test_a_unit_with_several_servers_needs_what_they_need_together() -> None:
    both = int(0.55 * 79 * GIB) + int(0.35 * 79 * GIB)
    assert two_servers().needed == Ok({GpuUuid("GPU-0"): both})
    place = in_service("vllm.service")
    first, second = (
        process(pid, place, start=950, engine="vllm", role=Role.API_SERVER, argv=("/v/bin/vllm", *words.split()))
        for pid, words in (
            (11, "serve a --gpu-memory-utilization 0.55"),
            (12, "serve b --gpu-memory-utilization 0.35 --port 8001"),
        )
    )
    assert two_servers(first).needed == Ok({GpuUuid("GPU-0"): both})  # the second has not started yet
    assert two_servers(first, second).needed == Ok({GpuUuid("GPU-0"): both})


@pytest.mark.parametrize(
    ("code", "engines"),
    [
        (TWO, ["vllm", "vllm"]),
        ("(cd /a; exec vllm serve a) & { sglang serve; } & wait", ["vllm", "sglang"]),
        ("vllm serve a & exec vllm serve b", ["vllm", "vllm"]),
        ("vllm serve a; vllm serve b", ["vllm"]),  # one after the other
        ("vllm serve a || vllm serve b", ["vllm"]),
        ("docker run -d vllm/vllm-openai --model a; docker run lmsysorg/sglang sglang serve", ["vllm", "sglang"]),
    ],
)
def test_the_servers_of_a_command_are_those_that_run_at_the_same_time(code: str, engines: list[str]) -> None:
    assert [server.engine for server in servers_of(with_command(f"bash -c '{code}'").settings)] == engines


TOKENS = [
    *("m", "$A", "${B}", "-tp", "2", "--port", "--port=${B}", "--gpu-memory-utilization", "0.5", "--tensor=${B}"),
    *("--enforce-eager", "--api-key", "${A}", "--gpu-mem=${B}", '"$A"', "$(cat x)", "&&", "&", ";", "|", "'a b'"),
    *("CUDA_VISIBLE_DEVICES=$B", "CUDA_VISIBLE_DEVICES=2", "export", "source", "env", "exec", "if", "then", "fi", "("),
    *(")", "{", "}", "vllm", "serve", "bash", "-c", "eval", "docker", "run", "--gpus", "vllm/vllm-openai", "sudo", '"'),
]
VALUES = ["", "2", "0.3", "x", "--gpu-memory-utilization=0.3", "-tp 2", "--config=c", "x -tp 4"]


def answers(exec_start: tuple[str, ...], **given: Any) -> tuple[object, ...]:  # noqa: ANN401
    """Read what is known of a unit: its GPUs, and the shares of its servers."""
    found = required(unit(active="failed", settings=UnitSettings(exec_start=(exec_start,), **given)))
    return found.gpus, *found.ratios


@pytest.mark.parametrize("seed", range(4))
def test_no_known_answer_comes_from_an_unknown_word(seed: int) -> None:
    """Where an answer is known without a variable, it is the same for each value of it."""
    chosen = random.Random(seed)
    compared = 0
    for _ in range(250):
        words = [
            *chosen.choice(([], ["env"], ["numactl"])),
            "vllm",
            "serve",
            *chosen.choices(TOKENS, k=chosen.randrange(5)),
        ]
        words.insert(chosen.randrange(len(words) + 1), chosen.choice(("$A", "${B}", '"$A"')))
        exec_start = ("bash", "-c", " ".join(words)) if chosen.random() < 0.5 else tuple(words)
        unknown = answers(exec_start, pass_environment=("A", "B"))
        for _ in range(4):
            values = {name: chosen.choice(VALUES) for name in "AB"}
            known = answers(exec_start, environment=tuple(values.items()), manager_environment=())
            for before, after in zip(unknown, known, strict=False):
                if isinstance(before, Ok) and isinstance(after, Ok):
                    assert before == after, (exec_start, values)
                    compared += 1
    assert compared > 100


@pytest.mark.parametrize("seed", range(4))
def test_no_command_is_too_strange_to_read(seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(100):
        words = chosen.choices(TOKENS, k=chosen.randrange(12))
        for exec_start in (tuple(words), ("bash", "-c", " ".join(words)), ("sh", "-c", "".join(words))):
            settings = UnitSettings(exec_start=(exec_start,))
            servers_of(settings)
            assert environment_of(settings).get("A") is None
