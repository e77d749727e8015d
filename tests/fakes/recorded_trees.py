"""Recorded process trees (tests/fixtures/process_trees.yml) as processes for a procfs, with the pipes they must have.

Who shares which pipe: a child of multiprocessing and its creator have an end each of one pipe, by which both hear of
the other's death; all of a tree but the tracker have the writing end of the tracker's pipe; all have the server's
standard output, which the subreaper of one tree reads.
"""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import yaml
from tests.fakes.procfs import ProcessEntry

TREES: dict[str, dict[str, Any]] = yaml.safe_load(
    (Path(__file__).parents[1] / "fixtures/process_trees.yml").read_text()
)
CGROUP = "/system.slice/vllm-tiny.service"
_OUTPUT, _TRACKERS, _SENTINEL = 900_001, 900_002, 800_000  # inodes; a child's sentinel is that plus its pid


def stages(name: str) -> list[tuple[int, list[ProcessEntry]]]:
    """Give the tree before, as of second 0, and what is left of it at the seconds after."""
    before = TREES[name]["before"]
    return [(0, _entries(before, {})), *((at, _entries(before, change)) for at, change in TREES[name]["after"].items())]


def titles(name: str) -> dict[int, str]:
    """Say what each process of the tree is called in the end."""
    last = list(TREES[name]["after"].values())[-1]
    called: dict[int, str] = {row["pid"]: row.get("title") or _kind(row) for row in TREES[name]["before"]}
    called.update(last.get("titled", {}))
    return called


def without_pipes(entries: Iterable[ProcessEntry]) -> list[ProcessEntry]:
    return [{key: value for key, value in entry.items() if key != "pipes"} for entry in entries]  # type: ignore[misc]


def _entries(before: list[dict[str, Any]], change: dict[str, Any]) -> list[ProcessEntry]:
    server, adopter = before[0]["pid"], before[0]["ppid"]
    gone, zombies = change.get("gone", []), change.get("zombies", [])
    entries: list[ProcessEntry] = []
    for row in before:
        pid = row["pid"]
        if pid in gone:
            continue
        adopted = row["ppid"] in gone or row["ppid"] in zombies
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
    children = [one["pid"] for one in tree if one["ppid"] == row["pid"] and "tracker" not in one]
    mine = {} if "serve" in row else {24: _SENTINEL + row["pid"]}
    return output | mine | {32: _TRACKERS} | {40 + n: _SENTINEL + pid for n, pid in enumerate(children)}
