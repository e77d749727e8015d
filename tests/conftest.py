"""Options of the tests; fixtures are imported where they are used."""

import signal

import pytest

# Whoever is started in the background by a script has SIGINT ignored, and so has all that it starts; what is tested
# here must have it as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write expected pages anew; then read the diff")
