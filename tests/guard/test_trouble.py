"""The guard's answer under trouble, cell by cell."""

import re
from collections.abc import Sequence
from itertools import product
from pathlib import Path

import pytest
from tests.guard.steps import lines_of, played
from tests.guard.trouble import COLUMNS, ROWS, Key
from tests.guard.trouble_of_driver_and_systemd import DRIVER_AND_SYSTEMD
from tests.guard.trouble_of_host_and_files import HOST_AND_FILES

DOCS = Path(__file__).parents[2] / "docs/guard.md"
WAITS = {**DRIVER_AND_SYSTEMD, **HOST_AND_FILES}
SEES = "vllm.service waits to see what ended runs have left (enough is free)"
# What is no input of the waits is tried with real files and processes: by row, the test of each cell.
REAL = {
    "run directory": (
        "test_inputs.py::test_a_run_directory_that_does_not_answer_holds_no_start",
        "test_command.py::test_a_run_directory_that_cannot_be_written_costs_the_record_of_that_run_alone",
        "test_command.py::test_a_run_directory_that_cannot_be_written_costs_the_record_of_that_run_alone",
        "test_command.py::test_a_run_directory_that_is_absent_is_made_for_the_record",
    ),
    "llmhost itself": (
        "test_command.py::test_an_llmhost_that_is_slow_to_begin_waits_as_long_from_then_on",
        "test_command.py::test_a_bug_of_ours_admits_loudly_and_so_does_a_part_of_it_that_is_missing",
        "test_command.py::test_a_bug_of_ours_admits_loudly_and_so_does_a_part_of_it_that_is_missing",
        "test_line.py::test_a_service_starts_without_an_llmhost_that_is_gone_or_half_replaced",
    ),
}


@pytest.mark.parametrize(("row", "column", "name"), WAITS)
def test_what_the_guard_does_about_an_input_that_is_in_trouble(row: str, column: str, name: str) -> None:
    played(*WAITS[row, column, name])


@pytest.mark.parametrize(
    ("key", "lines"),
    [
        (
            ("systemd", "fails for good", "else it is a fault at the end of the wait"),
            [
                "vllm.service waits for systemd to say what is needed: starting (reading units); 2 s of 10 s",
                "vllm.service waits for systemd to say what is needed: timeout (reading); 10 s of 10 s",
                "vllm.service: cannot tell what is needed: systemd cannot be asked: timeout (reading)",
            ],
        ),
        (
            ("processes", "fails for good", "remedies give up after 45 s"),
            [
                f"{SEES}: processes are late; 45 s of 100 s",
                "vllm.service: not done with what earlier runs have left after 45 s: processes are late",
                "vllm.service: free after 45.0 s: 40.0 GiB or more free on GPU 0",
            ],
        ),
        (
            ("processes", "absent", "remedies that may not see them are given up after 3 s on end"),
            [
                f"{SEES}: processes are hidden; 0 s of 100 s",
                "vllm.service: processes are hidden: nothing can be told to be of an ended run",
                "vllm.service: free after 3.2 s: 40.0 GiB or more free on GPU 0",
            ],
        ),
        (
            ("config", "late", "a start is not let on without for 3 s, and the config counts when it comes"),
            [
                "silent config: it is done without, by the defaults",
                f"{SEES}: silent config; 3 s of 100 s",
                "the config has been read after 20.0 s, and counts from now on",
                "vllm.service waits for what ended runs have left to be gone (enough is free); 20 s of 100 s",
                "vllm.service: free after 20.1 s: 40.0 GiB or more free on GPU 0",
            ],
        ),
        (
            ("config", "fails for good", "or a fault that refuses, after 3 s"),
            ["mistake"],  # the command adds that the start is refused
        ),
        (
            ("history", "late", "without remedies nothing waits for it any longer"),
            [
                "there is no history: silent history",
                "vllm.service: free after 3.0 s: 40.0 GiB or more free on GPU 0",
            ],
        ),
    ],
)
def test_what_it_says(key: Key, lines: Sequence[str]) -> None:
    assert lines_of(*WAITS[key]) == lines


def test_each_cell_of_the_table_has_a_test() -> None:
    assert list(dict.fromkeys(key[:2] for key in WAITS)) == list(product(ROWS, COLUMNS))
    section = DOCS.read_text().split("## Under trouble\n")[1].split("\n## ")[0]
    head, _, *rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    assert tuple(head[1:]) == COLUMNS
    assert tuple(re.sub("`", "", row[0]) for row in rows) == (*ROWS, *REAL)
    assert all(len(row) == len(head) and all(row) for row in rows)
    for tests in REAL.values():
        assert len(tests) == len(COLUMNS)
        for file, name in (test.split("::") for test in tests):
            assert f"def {name}(" in (Path(__file__).parent / file).read_text(), name
