"""Anybody can start a process with any command line: none may cost more than its own classification, or much time."""

import time

import pytest

from llmhost.model.engine_arguments import parse_engine_arguments
from llmhost.model.engine_command import is_engine_command
from llmhost.model.engines import classify, tracker_fd
from llmhost.model.process import Role

TRACKER = "from multiprocessing.resource_tracker import main;main({})"


@pytest.mark.parametrize(
    "argv",
    [
        ("uvx",) * 5000,
        ("uvx", *("bash", "-c", "vllm") * 2000),
        ("docker", "run", *("env", "a=b") * 3000),
        ("bash", "-c", "x;" * 30000),
        ("bash", "-c", "x;" * 900 + "exec vllm serve m"),
        ("uvx", *("bash", "-c", "x;" * 30000) * 2),
        ("python", "-m", "vllm.entrypoints." + "vllm." * 12000),
        ("a" * 60000 + "::EngineCore",),
        ("python", "-c", "from " + "a." * 30000),
        ("python", "-c", TRACKER.format("9" * 5000)),
        ("vllm", "serve", "-tp", "1" * 5000, "--gpu-memory-utilization", "0." + "1" * 5000),
    ],
    ids=lambda argv: f"{argv[0][:10]}…{len(argv)}",
)
def test_a_hostile_command_line_is_dealt_with_at_once(argv: tuple[str, ...]) -> None:
    """The quickest of three: a collection of garbage of the whole test run may fall into one."""
    assert min(_seconds(argv) for _ in range(3)) < 0.2


def _seconds(argv: tuple[str, ...]) -> float:
    began = time.process_time()
    classify(argv, argv[0][:15])
    is_engine_command(argv)
    tracker_fd(argv)
    parse_engine_arguments("vllm", argv)
    return time.process_time() - began


def test_a_number_that_is_none_is_unknown() -> None:
    assert parse_engine_arguments("vllm", ("vllm", "serve", "-tp", "1" * 5000)).tensor_parallel is None
    assert tracker_fd(("python", "-c", TRACKER.format("9" * 5000))) is None
    assert classify(("python", "-c", TRACKER.format(32)), "python") == ("", Role.TRACKER)
