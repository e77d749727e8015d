"""The one table of inference engines: the engine that a process is of, and its part in it (docs/concepts.md: Role).

Pure, and in `model` so that sources, config and derivations read the same table. What is known of an engine's images,
arguments, port and metrics has tables of its own (CONTRIBUTING.md lists them). Processes are matched, in this order,
by title (`VLLM::EngineCore`), by command line, and by `comm` where it is a title or where there is no command line
(zombies). Not by `exe`: reading it takes privilege that the rest does not.

Titles are setproctitle's: the title replaces argv[0], padded with NULs or blanks, and its first 15 bytes become comm
(`VLLM::EngineCor`, `VLLM::Worker_TP`), so the patterns below match cut titles too. Everything with an engine's prefix
is that engine's, with role `other` when the title is new to us. vLLM's prefix is VLLM_PROCESS_NAME_PREFIX, default
VLLM: a custom one is accepted for titles of vLLM alone (`myteam::EngineCore`, but not a bare `myteam::Worker`), and
only in full: not in comm alone. TGI, llama.cpp, ollama and Triton set no titles: their parts are programs of their own.

Roles of other engines: the process with the model on a GPU is a `worker` (SGLang's scheduler, ollama's runner), the one
that listens an `api_server`. SGLang's router, a client of other servers, is none.
"""

import re
from collections.abc import Iterable, Mapping
from itertools import pairwise
from posixpath import basename

from llmhost.model.command.words import UNKNOWN, is_known
from llmhost.model.process import Process, Role

# Each with the place in the engine's source that sets it.
_TITLES: tuple[tuple[re.Pattern[str], str, Role], ...] = tuple(
    (re.compile(pattern), engine, role)
    for pattern, engine, role in (
        # vllm/v1/engine/core.py: EngineCore, EngineCore_DPn (before: EngineCoreProc_n, DPEngineCore_n);
        # vllm_omni/engine/stage_engine_core_proc.py: StageEngineCoreProc_… (before: StageCoreProc)
        (r"(?i:vllm)::(?:(?:Stage|DP|DPMoE)?Engi|StageCore)", "vllm", Role.CORE),
        (r"(?i:vllm)::APIServer", "vllm", Role.API_SERVER),  # vllm/entrypoints/cli/serve.py
        (r"(?i:vllm)::DPCoord", "vllm", Role.COORDINATOR),  # vllm/v1/engine/coordinator.py
        (r"(?i:vllm)::HeadlessE", "vllm", Role.COORDINATOR),  # one above the workers of each rank of --headless
        (r"(?i:vllm)::[A-Za-z]*Worker", "vllm", Role.WORKER),  # vllm/v1/executor/multiproc_executor.py
        (r"(?i:vllm-omni)::Diff", "vllm", Role.WORKER),  # vllm_omni/diffusion/worker: DiffusionWorker-n, …_TPn
        (r"(?i:vllm(?:-omni)?)::", "vllm", Role.OTHER),  # vllm/v1/kv_offload/tiering/fs/evictor.py: Evictor
        # the same with a prefix of the user's
        (r"[^\s:/]+::(?:Stage|DP|DPMoE)?EngineCore(?:[A-Z_]|$)", "vllm", Role.CORE),
        (r"[^\s:/]+::DPCoordinator$", "vllm", Role.COORDINATOR),
        (r"[^\s:/]+::APIServer_(?:DP)?\d", "vllm", Role.API_SERVER),
        (r"[^\s:/]+::Worker_(?:DP|PP|PCP|TP|DCP|EP)\d", "vllm", Role.WORKER),
        (r"ray::RayWorker(?:Wrapper|Proc)", "vllm", Role.WORKER),  # vllm/v1/executor/ray_executor*.py: actors
        # below python/sglang/srt:
        (r"sglang::tokeniz", "sglang", Role.API_SERVER),  # managers/multi_tokenizer_mixin.py: one of several servers
        (r"sglang::data_p", "sglang", Role.COORDINATOR),  # managers/data_parallel_controller.py
        (r"sglang::detoken", "sglang", Role.OTHER),  # managers/detokenizer_manager.py
        # managers/scheduler.py: scheduler_DPn_TPn_…; parts with memory on a GPU of later and derived versions
        (r"sglang::(?:\w*schedul|semi_pd|gpu_wor|async_draft|model_r)", "sglang", Role.WORKER),
        (r"sglang::mm_", "sglang", Role.WORKER),  # multimodal/: mm_host, mm_processor_worker:n; may be on a GPU
        (r"sglang::server", "sglang", Role.API_SERVER),  # sglang_router/launch_server.py: one of several servers
        (r"sglang::", "sglang", Role.OTHER),  # sglang_router/launch_router.py: router
        # multimodal_gen/runtime/managers/gpu_worker.py, of models that make pictures: scheduler_TPn, partial_n
        (r"sgl_diffusion::", "sglang", Role.WORKER),
    )
)

# Program → subcommand ("" for any) → engine and role.
_PROGRAMS: Mapping[str, Mapping[str, tuple[str, Role]]] = {
    "vllm": {"serve": ("vllm", Role.API_SERVER)},
    "vllm-omni": {"serve": ("vllm", Role.API_SERVER)},
    "vllm-rs": {"frontend": ("vllm", Role.API_SERVER), "serve": ("vllm", Role.API_SERVER)},  # VLLM_USE_RUST_FRONTEND
    "sglang": {"serve": ("sglang", Role.API_SERVER)},
    "llama-server": {"": ("llamacpp", Role.API_SERVER)},
    "llama": {"serve": ("llamacpp", Role.API_SERVER)},  # tools/llama: one program for all of them
    "text-generation-launcher": {"": ("tgi", Role.LAUNCHER)},
    "text-generation-router": {"": ("tgi", Role.API_SERVER)},
    "text-generation-router-v2": {"": ("tgi", Role.API_SERVER)},
    "text-generation-router-llamacpp": {"": ("tgi", Role.API_SERVER)},  # with the model in it: TGI, backends/llamacpp
    "text-generation-server": {"serve": ("tgi", Role.WORKER)},
    "ollama": {
        "serve": ("ollama", Role.API_SERVER),
        "start": ("ollama", Role.API_SERVER),
        "runner": ("ollama", Role.WORKER),
    },
    "ollama_llama_server": {"": ("ollama", Role.WORKER)},  # ollama before 0.5
    "tritonserver": {"": ("triton", Role.API_SERVER)},
    "triton_python_backend_stub": {"": ("triton", Role.WORKER)},
}

# `python -m MODULE`, or `python …/MODULE.py` with slashes for dots; then a subcommand ("" for any), engine and role.
_MODULES: tuple[tuple[re.Pattern[str], str, str, Role], ...] = tuple(
    (re.compile(rf"(?:.*\.)?(?:{pattern})"), subcommand, engine, role)
    for pattern, subcommand, engine, role in (
        (r"vllm\.entrypoints\.(?:\w+\.)*(?:api_server|grpc_server)", "", "vllm", Role.API_SERVER),
        (r"vllm(?:_omni)?\.entrypoints\.cli\.main", "serve", "vllm", Role.API_SERVER),
        (r"vllm", "serve", "vllm", Role.API_SERVER),
        (r"sglang\.(?:multimodal_gen\.runtime\.)?launch_server", "", "sglang", Role.API_SERVER),
        (r"sglang\.multimodal_gen\.runtime\.entrypoints\.cli\.main", "serve", "sglang", Role.API_SERVER),
        (r"llama_cpp\.server", "", "llamacpp", Role.API_SERVER),
        (r"text_generation_server\.cli", "serve", "tgi", Role.WORKER),
    )
)

# Names that fit into comm whole; "text-generation" is what is left of three.
_COMMS: Mapping[str, tuple[str, Role]] = {
    "vllm": ("vllm", Role.API_SERVER),
    "llama-server": ("llamacpp", Role.API_SERVER),
    "text-generation": ("tgi", Role.OTHER),
    "ollama_llama_se": ("ollama", Role.WORKER),
    "tritonserver": ("triton", Role.API_SERVER),
    "triton_python_b": ("triton", Role.WORKER),
}

# CPython 3.8 to 3.14 resource_tracker, 3.6 and 3.7 semaphore_tracker, joblib's own (`main(3, False)`).
_TRACKER_CODE = re.compile(r"from [\w.]*(?:resource|semaphore)_tracker import main; ?main\((\d{1,9})[,)]")
_SPAWN_CODE = re.compile(r"from [\w.]*spawn import spawn_main; ?spawn_main\(")
_FORKSERVER_CODE = re.compile(r"from [\w.]*forkserver import main; ?main\(")
_PYTHON = re.compile(rf"(?:python|pypy)[\d.]*t?(?:-\w+)?$|\$|{UNKNOWN}")  # a variable may be a Python

_NOTHING = ("", Role.OTHER)
_LONGEST_NAME = 200  # of a module or title; users choose theirs, and matching must not take long
_FRONTS = (Role.API_SERVER, Role.LAUNCHER)


def classify(argv: tuple[str, ...], comm: str) -> tuple[str, Role]:
    """Name the engine and the role of a process, each by itself: `settled_roles` then looks at parents.

    ("", TRACKER) for Python's resource trackers, of any program; ("", OTHER) for what is no engine's, among it a bare
     `spawn_main` (see `is_spawn_main`), a forkserver, and a shell or wrapper that waits for an engine.
    """
    found = _by_title(argv[0]) if argv else None
    if found is None and argv:
        found = own_command(argv)
        if found == ("vllm", Role.API_SERVER) and _serves_through_children(argv):
            found = ("vllm", Role.LAUNCHER)
    if found is None and tracker_fd(argv) is not None:
        found = ("", Role.TRACKER)
    if found is None:
        found = _by_title(comm)
    if found is None and not argv:
        found = _COMMS.get(comm)
    return found or _NOTHING


def own_command(argv: tuple[str, ...]) -> tuple[str, Role] | None:
    """Give engine and role by the program itself, not seeing through wrappers; None when it is no known engine."""
    program = basename(argv[0])
    rest = argv[1:]
    if _PYTHON.match(program):
        module, script, rest = _python_target(rest)
        if module:
            return _by_module(module, rest)
        found = _by_module(script.removesuffix(".py").replace("/", "."), rest) if script.endswith(".py") else None
        program = basename(script)
        if found is not None:
            return found
    by_subcommand = _PROGRAMS.get(program, {})
    subcommand = rest[0] if rest else ""
    if by_subcommand and not is_known(subcommand):  # the service of such a program serves
        return by_subcommand.get("") or by_subcommand.get("serve")
    return by_subcommand.get("") or by_subcommand.get(subcommand)


def tracker_fd(argv: tuple[str, ...]) -> int | None:
    """Read the N of `main(N)`, the tracker's end of its pipe; None when this is no resource tracker."""
    match = _TRACKER_CODE.match(_code(argv))
    return int(match[1]) if match else None


def is_spawn_main(argv: tuple[str, ...]) -> bool:
    """Say whether this is a child of Python multiprocessing without a title: an engine's child in its first seconds.

    By itself it is of no engine: its tree, its unit, or its GPU memory decides (derive/orphans).
    """
    return bool(_SPAWN_CODE.match(_code(argv)))


def is_forkserver(argv: tuple[str, ...]) -> bool:
    """Say whether this is Python multiprocessing's fork server, or a child of it without a title."""
    return bool(_FORKSERVER_CODE.match(_code(argv)))


def settled_roles(processes: Iterable[Process], by_pid: Mapping[int, Process]) -> dict[int, Role]:
    """Give the roles that depend on the parent, by pid; only those that differ from `classify`'s.

    `vllm serve` with API servers for children (`VLLM::APIServer_N`, vllm-rs) is a launcher: its arguments need not say
    so, as the default of `--api-server-count` follows the data parallel size. A child that runs its server's program is
    its worker: a fork (vLLM V0; V1 until it sets its title), or a server that llama-server in router mode started.
    """
    settled: dict[int, Role] = {}
    for process in processes:
        parent = by_pid.get(process.ppid)
        if process.role not in _FRONTS or parent is None or parent.role not in _FRONTS:
            continue
        if parent.engine != process.engine:
            continue
        if process.argv[:1] == parent.argv[:1]:
            if process.argv and not _by_title(process.argv[0]):
                settled[process.id.pid] = Role.WORKER
        else:
            settled[parent.id.pid] = Role.LAUNCHER
    return {pid: role for pid, role in settled.items() if by_pid[pid].role is not role}


def _serves_through_children(argv: tuple[str, ...]) -> bool:
    """Tell by vLLM's arguments: `--headless` (no server on this host), `--api-server-count N` with N other than 1."""
    for argument, following in pairwise((*argv, "")):
        option, equals, value = argument.partition("=")
        option = option.replace("_", "-")
        if option == "--headless":
            return True
        if option in ("--api-server-count", "-asc"):
            return (value if equals else following) not in ("1", "")
    return False


def _by_title(title: str) -> tuple[str, Role] | None:
    if "::" not in title:
        return None
    title = title[:_LONGEST_NAME].rstrip(" \0")
    for pattern, engine, role in _TITLES:
        if pattern.match(title):
            return engine, role
    return None


def _by_module(module: str, rest: tuple[str, ...]) -> tuple[str, Role] | None:
    if len(module) > _LONGEST_NAME:
        return None
    for pattern, subcommand, engine, role in _MODULES:
        if pattern.fullmatch(module) and (not subcommand or rest[:1] == (subcommand,)):
            return engine, role
    return None


def _python_target(arguments: tuple[str, ...]) -> tuple[str, str, tuple[str, ...]]:
    """Find the module (`-m`) or script that Python runs, and the arguments after it; neither for `-c` and stdin."""
    index = 0
    while index < len(arguments):
        argument = arguments[index]
        index += 1
        if not argument.startswith("-") or argument == "-":
            return "", argument, arguments[index:]
        if argument.startswith("--"):
            index += argument == "--check-hash-based-pycs"
            continue
        for position, letter in enumerate(argument[1:], 2):  # letters cluster: -um MODULE
            if letter not in "cmWX":
                continue
            value = argument[position:]
            if not value:
                value = arguments[index] if index < len(arguments) else ""
                index += 1
            if letter in "cm":
                return value if letter == "m" else "", "", arguments[index:]
            break
    return "", "", ()


def _code(argv: tuple[str, ...]) -> str:
    """Give the code after the first `-c`, whatever the interpreter is called."""
    if "-c" not in argv:
        return ""
    for option, code in pairwise(argv):
        if option == "-c":
            return code
    return ""
