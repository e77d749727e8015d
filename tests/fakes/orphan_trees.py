"""Processes of engines and their children, as the rules on orphans see them."""

from typing import Any

from tests.fakes.values import in_service, process, snapshot

from llmhost.derive.orphans import orphan_conditions
from llmhost.model.engines import classify
from llmhost.model.process import Placement, Process
from llmhost.model.reading import Ok

SPAWN = ("python3", "-c", "from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd=9, pipe_handle=8)")
FORKSERVER = ("python3", "-c", "from multiprocessing.forkserver import main; main(9, 10, ['x'], **{})")
TRACKER = ("python3", "-B", "-c", "from multiprocessing.resource_tracker import main;main(31)")
SERVICE = in_service("vllm.service")

# As of CPython: what the child holds of its creator's pipes, on descriptors above the standard ones.
WITH_CREATOR, OUTPUT, OTHER_PIPE = 7001, 7002, 7003
CREATOR_PIPES = {5: WITH_CREATOR, 1: OUTPUT}
CHILD_PIPES = {24: WITH_CREATOR, 1: OUTPUT, 2: OUTPUT}
ADOPTER_PIPES = {3: OUTPUT, 8: OTHER_PIPE}  # reads the output of the tree, holds nothing else of it


def run(
    pid: int,
    command: str | tuple[str, ...],
    ppid: int = 1,
    placement: Placement | None = None,
    **more: Any,  # noqa: ANN401
) -> Process:
    argv = tuple(command.split()) if isinstance(command, str) else command
    comm = more.pop("comm", argv[0].rsplit("/", 1)[-1][:15])
    engine, role = classify(argv, comm)
    values = {
        "argv": argv,
        "comm": comm,
        "engine": engine,
        "role": role,
        "ppid": ppid,
        "pgrp": 100,
        "session": 100,
        "pipes": {},
    }
    values |= more
    return process(pid, placement, **({"pipes_denied": values["pipes"] is None} | values))


INIT = run(1, "/sbin/init", ppid=0, pgrp=1, comm="systemd", pipes={9: OTHER_PIPE})


def conditions(*processes: Process, **more: Any) -> dict[int, bool]:  # noqa: ANN401
    """Pids in an orphan's condition, and whether that is inferred."""
    found = orphan_conditions(snapshot(processes=[INIT, *processes], **more))
    assert isinstance(found, Ok)
    return {identity.pid: inferred for identity, inferred in found.value.items()}
