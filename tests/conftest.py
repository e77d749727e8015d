"""Options of the tests; fixtures are imported where they are used."""

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write expected pages anew; then read the diff")
