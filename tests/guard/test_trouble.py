"""The guard's answer under trouble, cell by cell."""

import re
from itertools import product
from pathlib import Path

import pytest
from tests.guard.steps import played
from tests.guard.trouble import COLUMNS, ROWS
from tests.guard.trouble_of_driver_and_systemd import DRIVER_AND_SYSTEMD
from tests.guard.trouble_of_host_and_files import HOST_AND_FILES

DOCS = Path(__file__).parents[2] / "docs/guard.md"
WAITS = {**DRIVER_AND_SYSTEMD, **HOST_AND_FILES}
REAL = ("run directory", "llmhost itself")  # no input of the waits: test_inputs.py, test_drop_in.py


@pytest.mark.parametrize(("row", "column", "name"), WAITS)
def test_what_the_guard_does_about_an_input_that_is_in_trouble(row: str, column: str, name: str) -> None:
    played(*WAITS[row, column, name])


def test_each_cell_of_the_table_has_a_test() -> None:
    assert list(dict.fromkeys(key[:2] for key in WAITS)) == list(product(ROWS, COLUMNS))
    section = DOCS.read_text().split("## Under trouble\n")[1].split("\n## ")[0]
    head, _, *rows = [line.strip("| ").split(" | ") for line in section.splitlines() if line.startswith("|")]
    assert tuple(head[1:]) == COLUMNS
    assert tuple(re.sub("`", "", row[0]) for row in rows) == (*ROWS, *REAL)
    assert all(len(row) == len(head) and all(row) for row in rows)
