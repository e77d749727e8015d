"""Every recorded way of killing vLLM, looked at before, and 2, 10 and 40 seconds after."""

import shutil
from pathlib import Path

import pytest
from tests.fakes.looks import Looks
from tests.fakes.procfs import write_proc
from tests.fakes.recorded_trees import TREES, stages, titles, without_pipes

from llmhost.derive.trackers import TrackerState

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


def test_every_recorded_tree_is_expected_to_give_something() -> None:
    assert EXPECTED.keys() == TREES.keys()


@pytest.mark.parametrize("readable", [True, False], ids=["with pipes", "without privilege"])
@pytest.mark.parametrize("name", EXPECTED)
def test_what_a_recorded_kill_left_is_told_after_the_grace_time_and_not_before(
    name: str, readable: bool, tmp_path: Path
) -> None:
    expected, soon, late = EXPECTED[name]
    looks = Looks(tmp_path)
    called = titles(name)
    told: dict[int, list[str]] = {}
    states: dict[int, list[TrackerState]] = {}
    for at, entries in stages(name):
        for old in tmp_path.glob("[0-9]*"):
            shutil.rmtree(old)
        write_proc(tmp_path, entries if readable else without_pipes(entries))
        found = looks.orphans(at)
        told[at] = sorted(called[int(pid)] for pid in found)
        states[at] = list(looks.trackers().values())
        assert all(orphan.inferred is not readable for orphan in found.values())
        assert all(orphan.seconds == at - 2 for orphan in found.values())  # first seen so 2 s after the kill
        assert all(orphan.engine == "vllm" for orphan in found.values())
    if 40 not in told:  # nothing was left at 10 s, so nobody looked again
        told[40], states[40] = sorted(called[int(pid)] for pid in looks.orphans(40)), list(looks.trackers().values())
    assert told == {0: [], 2: [], 10: [], 40: expected}
    assert states[0] == [ATTACHED]
    assert states[2] == ([] if soon is None else [soon])
    assert states[40] == ([] if late is None else [late])
