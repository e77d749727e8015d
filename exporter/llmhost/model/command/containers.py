"""Containers: the image, the command, the variables and the GPUs that `docker run` and `podman run` give. Pure."""

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass

from llmhost.model.command.environment import ASSIGNMENT, Environment
from llmhost.model.command.words import SOME, UNKNOWN, is_known
from llmhost.model.command.wrappers import Options, spelled, split_options

CLIENTS = frozenset({"docker", "podman", "nerdctl"})
_COUNTS = frozenset(map(str, range(65)))  # of --gpus

# docker-run(1) and podman-run(1): short options with a value, and long ones without.
_SHORT = spelled("a c e h l m p u v w", "-")
_FLAGS = spelled(
    "detach disable-content-trust env-host help http-proxy init interactive no-healthcheck no-hostname no-hosts "
    "oom-kill-disable passwd privileged publish-all quiet read-only read-only-tmpfs replace rm rmi rootfs sig-proxy "
    "tls-verify tty unsetenv-all use-api-socket"
)
# Of the client itself, before `run`: docker(1), podman(1).
_CLIENT_SHORT = spelled("H l c", "-")
_CLIENT_FLAGS = spelled("debug tls tlsverify help version remote syslog transient-store")

# Images whose entry point is an engine: its arguments, or its command line, follow them. Each with where it is told.
_IMAGES: tuple[tuple[re.Pattern[str], str], ...] = tuple(
    (re.compile(rf"(?:docker://)?(?:[\w.-]+(?::\d+)?/)*(?:{name})(?:[:@][^/]*)?", re.DOTALL), engine)
    for name, engine in (
        (r"vllm/vllm-openai[\w-]*", "vllm"),  # docs.vllm.ai, Using Docker
        (r"rocm/vllm[\w-]*", "vllm"),  # rocm.docs.amd.com, vLLM inference
        (r"nvidia/vllm", "vllm"),  # catalog.ngc.nvidia.com
        (r"rhaiis/vllm-[\w-]+", "vllm"),  # docs.redhat.com, Red Hat AI Inference Server
        (r"rhaii[\w-]*/vllm-[\w-]+", "vllm"),  # the same, its later name
        (r"vllm-cpu-release-repo|vllm-ci-[\w-]+", "vllm"),  # docs.vllm.ai, CPU installation
        (r"vllm/vllm-omni[\w-]*", "vllm"),  # docs.vllm.ai/projects/vllm-omni
        (r"lmsysorg/sglang[\w-]*", "sglang"),  # docs.sglang.ai, Install SGLang
        (r"huggingface/text-generation-inference", "tgi"),  # huggingface.co/docs/text-generation-inference
        (r"ggml-org/llama\.cpp|ggerganov/llama\.cpp", "llamacpp"),  # llama.cpp, docs/docker.md
        (r"ollama/ollama", "ollama"),  # hub.docker.com/r/ollama/ollama
        (r"nvidia/tritonserver", "triton"),  # catalog.ngc.nvidia.com
        (r"nim/[\w./-]+", "nim"),  # docs.nvidia.com/nim: which engine it runs is chosen when it starts
    )
)
_NO_GPU_IMAGE = re.compile(r"(?:^|[/:_-])cpu(?:[:_-]|$)")
_CSV_FIELD = re.compile(r'"([^"]*)"|([^",]+)')
_CDI = "nvidia.com/gpu="
_VISIBLE = "NVIDIA_VISIBLE_DEVICES"


@dataclass(frozen=True, slots=True, kw_only=True)
class Container:
    """`gpus` are the names of the GPUs in it, "all" or UNKNOWN among them."""

    image: str
    engine: str  # of the image; "" where it is not known
    argv: tuple[str, ...]  # entry point, where it is given, and command
    environment: Environment
    gpus: tuple[str, ...]
    detached: bool


def parse_container(arguments: Sequence[str], client: Environment) -> Container | None:
    """Read the arguments of docker or podman; None where they run no container."""
    words = split_options(arguments, _CLIENT_SHORT, flags=_CLIENT_FLAGS).rest
    words = words[1:] if words[:1] == ("container",) else words
    if words[:1] != ("run",):
        return None
    options = split_options(words[1:], _SHORT, flags=_FLAGS)
    if not options.rest:
        return None
    image, *command = options.rest
    entry_point = options.last("--entrypoint")
    environment = _environment(options, client)
    return Container(
        image=image,
        engine="" if entry_point else image_engine(image),
        argv=(*_entry_point(entry_point), *command),
        environment=environment,
        gpus=_gpus(options, environment, image),
        detached=_is_set(options, "-d", "--detach"),
    )


def image_engine(image: str) -> str:
    """Name the engine that is the entry point of an image; "" where it is not known."""
    return next((engine for pattern, engine in _IMAGES if pattern.fullmatch(image)), "")


def is_for_cpus(image: str) -> bool:
    return bool(_NO_GPU_IMAGE.search(image))


def _is_set(options: Options, *names: str) -> bool:
    return options.last(*names) not in (None, "false")


def _entry_point(text: str | None) -> tuple[str, ...]:
    """Read a program, or (podman) a JSON list."""
    if not text:
        return ()
    if not is_known(text):
        return (SOME,)
    if text.startswith("["):
        try:
            words = json.loads(text)
        except ValueError:
            return (SOME,)
        return tuple(map(str, words)) if isinstance(words, list) else (SOME,)
    return (text,)


def _environment(options: Options, client: Environment) -> Environment:
    """Collect --env; NAME without a value is the client's. Later ones go over --env-file."""
    environment = Environment()
    if not options.surely or options.last("--env-file", "--env-host", "--env-merge", "--secret") is not None:
        environment = environment.opened("an environment file of the container")
    for text in options.every("-e", "--env"):
        assigned = ASSIGNMENT.fullmatch(text)
        if assigned is not None:
            environment = environment.with_values({assigned[1]: assigned[2]})
        elif is_known(text) and not text.endswith("*"):  # podman's, for all that begin so
            environment = environment.with_values({text: client.get(text)})
        else:
            environment = environment.opened("an option of the container")
    return environment


def _gpus(options: Options, environment: Environment, image: str) -> tuple[str, ...]:
    """Find the GPUs: --gpus, else CDI devices, else NVIDIA_VISIBLE_DEVICES of NVIDIA's runtime (its user guide)."""
    wanted = options.last("--gpus")
    devices = options.every("--device")
    runtime = options.last("--runtime")
    visible = environment.get(_VISIBLE)
    names: tuple[str, ...] = (UNKNOWN,)
    if wanted is not None:
        names = _wanted(wanted)
    elif any(device.startswith(_CDI) for device in devices):
        names = tuple(device.removeprefix(_CDI) for device in devices if device.startswith(_CDI))
    elif runtime == "nvidia" and visible is not None:
        names = tuple(visible.split(",")) if is_known(visible) else (UNKNOWN,)
    elif runtime == "nvidia" and image_engine(image):
        names = ("all",)  # what CUDA's images set
    certain = options.surely and not (_is_set(options, "--privileged") and names != ("all",))
    return names if certain and all(map(is_known, names)) else (UNKNOWN,)


def _wanted(text: str) -> tuple[str, ...]:
    """Read --gpus: all, a number, device=…, or a CSV line of such (docker: opts/gpus.go)."""
    if not is_known(text):
        return (UNKNOWN,)
    given: dict[str, str] = {}
    for quoted, plain in _CSV_FIELD.findall(text):
        key, equals, value = (quoted or plain).strip().partition("=")
        given.setdefault(key if equals else "count", value if equals else key)
    if "device" in given and "count" not in given:
        return tuple(given["device"].split(","))
    count = given.get("count", "all")
    if "device" not in given and count in ("all", "-1"):
        return ("all",)
    if "device" not in given and count in _COUNTS:
        return tuple(str(index) for index in range(int(count)))
    return (UNKNOWN,)
