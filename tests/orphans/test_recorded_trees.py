"""Recorded trees of vLLM 0.32 (tests/fixtures/process_trees.yml), before, and 2, 10 and 40 seconds after each kill.

Who shares which pipe was not recorded: a child of multiprocessing and its creator have an end each of one pipe, by
which both hear of the other's death; all of a tree but the tracker have the writing end of the tracker's pipe; all have
the server's standard output, which the subreaper of one tree reads.
"""

import shutil
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.observed_processes import ObservedProcesses
from tests.fakes.procfs import ProcessEntry, write_proc

from llmhost.derive.trackers import TrackerState
from llmhost.model.process import Role

ORPHANED, ATTACHED, ZOMBIE = TrackerState.ORPHANED, TrackerState.ATTACHED, TrackerState.ZOMBIE
TP2 = ["VLLM::EngineCore", "VLLM::Worker_TP0", "VLLM::Worker_TP1"]

# What is an orphan 40 s after the kill, and the tracker's state 2 and 40 s after it (None: there is none).
EXPECTED: dict[str, tuple[list[str], TrackerState | None, TrackerState | None]] = {
    "dp2_kill_api": (
        [
            *("VLLM::APIServer_0", "VLLM::APIServer_1", "VLLM::DPCoordinator"),
            *("VLLM::EngineCore_DP0", "VLLM::EngineCore_DP1", "VLLM::Worker", "VLLM::Worker"),
        ],
        ORPHANED,
        ORPHANED,
    ),
    "tp1_kill_api": (["VLLM::EngineCore", "VLLM::Worker"], ORPHANED, ORPHANED),
    "tp2_kill_all": ([], None, None),
    "tp2_kill_api": (TP2, ORPHANED, ORPHANED),
    "tp2_kill_core": ([], ORPHANED, None),
    "tp2_kill_tracker": ([], ZOMBIE, ZOMBIE),
    "tp2_load16_kill_api": (TP2, ORPHANED, ORPHANED),
    "tp2_subreaper_kill_api": (TP2, ORPHANED, ORPHANED),
    "tp2_term_all": ([], ZOMBIE, None),
}
ROLES = {
    "server": Role.API_SERVER,
    "tracker": Role.TRACKER,
    "spawned": Role.OTHER,
    "VLLM::APIServer": Role.API_SERVER,
    "VLLM::DPCoordinator": Role.COORDINATOR,
    "VLLM::EngineCore": Role.CORE,
    "VLLM::Worker": Role.WORKER,
}


TREES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "fixtures/process_trees.yml").read_text()
)
CGROUP = "/system.slice/vllm-tiny.service"
_OUTPUT, _TRACKERS, _SENTINEL = 900_001, 900_002, 800_000  # inodes; a child's sentinel is that plus its pid


def stages(name: str) -> Iterator[tuple[int, list[ProcessEntry], dict[int, str]]]:
    """Give the tree before, as of second 0, and what is left of it at the seconds after; with what each is called."""
    before = TREES[name]["before"]
    for at, change in [(0, {}), *TREES[name]["after"].items()]:
        called = {row["pid"]: row.get("title") or _kind(row) for row in before} | change.get("titled", {})
        yield at, _entries(before, change), called


def without_pipes(entries: Iterable[ProcessEntry]) -> list[ProcessEntry]:
    return [{key: value for key, value in entry.items() if key != "pipes"} for entry in entries]  # type: ignore[misc]


def _entries(before: list[dict[str, Any]], change: dict[str, Any]) -> list[ProcessEntry]:
    server, adopter = before[0]["pid"], before[0]["ppid"]
    ended, zombies = change.get("gone", []), change.get("zombies", [])
    entries: list[ProcessEntry] = []
    for row in before:
        pid = row["pid"]
        if pid in ended:
            continue
        adopted = row["ppid"] in ended or row["ppid"] in zombies
        entry: ProcessEntry = {
            "pid": pid,
            "ppid": adopter if adopted else row["ppid"],
            "pgrp": server,
            "session": server,
            "start": row["start"],
            "cgroup": CGROUP,
            "comm": _comm(row),
        }
        if pid in zombies:
            entry["state"] = "Z"
        else:
            title = change.get("titled", {}).get(pid)
            entry["argv"] = [title] if title else _argv(row)
            entry["pipes"] = _pipes(row, before)
            if title:
                entry["comm"] = title[:15]
        entries.append(entry)
    if adopter != 1:
        entries.append({"pid": adopter, "argv": ["python3", "run.py"], "start": 100, "pipes": {7: _OUTPUT}})
    return [{"pid": 1, "ppid": 0, "start": 1, "argv": ["/sbin/init"], "comm": "systemd", "pipes": {9: 5}}, *entries]


def _argv(row: dict[str, Any]) -> list[str]:
    python = "/opt/vllm/bin/python3"
    if "serve" in row:
        return [python, "/opt/vllm/bin/vllm", "serve", *row["serve"].split()]
    if "tracker" in row:
        return [python, "-B", "-c", f"from multiprocessing.resource_tracker import main;main({row['tracker']})"]
    if "spawned" in row:
        tracker, handle = row["spawned"]
        spawn = f"from multiprocessing.spawn import spawn_main; spawn_main(tracker_fd={tracker}, pipe_handle={handle})"
        return [python, "-B", "-c", spawn, "--multiprocessing-fork"]
    return [row["title"]]


def _comm(row: dict[str, Any]) -> str:
    if "serve" in row:
        return "vllm"
    return str(row["title"])[:15] if "title" in row else "python3"


def _kind(row: dict[str, Any]) -> str:
    return "server" if "serve" in row else "tracker" if "tracker" in row else "spawned"


def _pipes(row: dict[str, Any], tree: list[dict[str, Any]]) -> dict[int, int]:
    output = {1: _OUTPUT, 2: _OUTPUT}
    if "tracker" in row:
        return {2: _OUTPUT, row["tracker"]: _TRACKERS}
    children = [entry["pid"] for entry in tree if entry["ppid"] == row["pid"] and "tracker" not in entry]
    own = {} if "serve" in row else {24: _SENTINEL + row["pid"]}
    return output | own | {32: _TRACKERS} | {40 + n: _SENTINEL + pid for n, pid in enumerate(children)}


def test_every_recorded_tree_is_expected_to_give_something() -> None:
    assert EXPECTED.keys() == TREES.keys()


@pytest.mark.parametrize("readable", [True, False], ids=["with pipes", "without privilege"])
@pytest.mark.parametrize("name", EXPECTED)
def test_orphans_of_a_recorded_kill_are_reported_after_the_grace_time_and_not_before(
    name: str, readable: bool, tmp_path: Path
) -> None:
    expected, soon, late = EXPECTED[name]
    processes = ObservedProcesses(tmp_path)
    reported: dict[int, list[str]] = {}
    states: dict[int, list[TrackerState]] = {}
    for at, entries, called in stages(name):
        for old in tmp_path.glob("[0-9]*"):
            shutil.rmtree(old)
        write_proc(tmp_path, entries if readable else without_pipes(entries))
        found = processes.orphans(at)
        reported[at] = sorted(called[int(pid)] for pid in found)
        states[at] = list(processes.trackers().values())
        assert all(orphan.inferred is not readable for orphan in found.values())
        assert all(orphan.seconds == at - 2 for orphan in found.values())  # first seen so 2 s after the kill
        assert all(orphan.engine == "vllm" for orphan in found.values())
        launcher = {"server": Role.LAUNCHER} if name == "dp2_kill_api" else {}
        for pid in called.keys() & processes.table.by_pid:
            role = (ROLES | launcher)[called[pid].split("_")[0]]
            engine = "" if role in {Role.TRACKER, Role.OTHER} else "vllm"
            assert (processes.table.by_pid[pid].engine, processes.table.by_pid[pid].role) == (engine, role)
    if 40 not in reported:  # nothing was left at 10 s, so nobody looked again
        reported[40], states[40] = (
            sorted(called[int(pid)] for pid in processes.orphans(40)),
            list(processes.trackers().values()),
        )
    assert reported == {0: [], 2: [], 10: [], 40: expected}
    assert states[0] == [ATTACHED]
    assert states[2] == ([] if soon is None else [soon])
    assert states[40] == ([] if late is None else [late])
