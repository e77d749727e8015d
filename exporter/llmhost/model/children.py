"""Processes that others must have created: parts of an engine, and children of Python's multiprocessing. Pure."""

import re
from posixpath import basename

from llmhost.model.engines import is_forkserver, is_spawn_main
from llmhost.model.process import Process, Role

_CHILD_ROLES = frozenset({Role.CORE, Role.WORKER, Role.COORDINATOR})

# One of several servers that a launcher started; `vllm serve` itself, whatever it calls itself, has no such title.
_SERVER_OF_SEVERAL = re.compile(r"[^\s:/]+::(?:APIServer_(?:DP)?\d|(?:tokenizer_worker|server)\b)")

# Engines whose servers start their parts as programs of their own, without Python's pipes.
_WITHOUT_MULTIPROCESSING = frozenset({"llamacpp", "ollama", "tgi", "triton"})

_PYTHON = re.compile(r"(?:python|pypy)[\d.]*t?(?:-\w+)?$")
_RAY = "ray::"


def is_engine_child(process: Process) -> bool:
    """Say whether an engine's server or launcher must have started it, by its role and title.

    Of API servers only one of several: the others are programs that users and supervisors start.
    """
    if not process.engine:
        return False
    if process.role is Role.API_SERVER:
        return bool(process.argv) and _SERVER_OF_SEVERAL.match(process.argv[0]) is not None
    return process.role in _CHILD_ROLES


def is_bare_child(process: Process) -> bool:
    """Say whether it is a child of Python's multiprocessing without a title, or a fork server, of any program."""
    if process.engine or "-c" not in process.argv:
        return False
    return is_spawn_main(process.argv) or is_forkserver(process.argv)


def is_ray_actor(process: Process) -> bool:
    """Say whether Ray's raylet starts and ends it: its parent is no engine and shares no pipe with it."""
    return bool(process.argv) and process.argv[0].startswith(_RAY)


def has_creators_pipes(process: Process) -> bool:
    """Say whether it shares pipes with its creator, as Python's multiprocessing makes them (derive/parentage)."""
    return process.engine not in _WITHOUT_MULTIPROCESSING and not is_ray_actor(process)


def is_python(process: Process) -> bool:
    return _PYTHON.match(basename(process.argv[0]) if process.argv else process.comm) is not None
