"""Options of the tests; a fixture is in the conftest.py of its folder, or imported where it is used."""

import os
import signal
from pathlib import Path

import pytest
from tests.fakes import needs

HERE = Path(__file__).parent
# What takes long, beginning with that: pytest-xdist gives each process a file at a time, and none should be left with
# a long one when the others are done. Those that compute are put among those that mostly wait.
LONG = (
    "alerts/test_rules.py",
    "cli/test_release.py",
    "prometheus/test_scraping.py",
    "guard/test_reap.py",
    "alerts/test_time_to_fire.py",
    "starts/test_incident.py",
    "starts/test_remembered.py",
    "guard/test_incident.py",
    "cli/test_clean.py",
    "cli/test_status.py",
    "guard/test_stalls.py",
    "guard/test_holders.py",
    "alerts/test_quiet_days.py",
    "guard/test_line.py",
    "guard/test_clean_shm.py",
    "grafana/test_histories.py",
    "guard/test_install.py",
    "act/test_removing_force.py",
    "guard/test_command.py",
    "hosts/test_hosts.py",
    "guard/test_on_systemd.py",
    "guard/test_reap_lock.py",
    "guard/test_exits.py",
    "guard/test_admissions.py",
    "guard/test_private_shm.py",
    "guard/test_busy_systemd.py",
    "hosts/test_schemas.py",
    "page/test_in_chromium.py",
    "chaos/test_chaos.py",
)

# Whoever is started in the background by a script has SIGINT ignored, and so has all that it starts; what is tested
# here must have it as from a terminal.
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--update-golden", action="store_true", help="write expected pages anew; then read the diff")
    parser.addoption(
        "--quick", action="store_true", help="leave out long files, and tests that need root or slow tools"
    )


def pytest_configure(config: pytest.Config) -> None:
    needs.quick = config.getoption("--quick")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave long files out of a quick run; None lets others decide."""
    return True if config.getoption("--quick") and collection_path in {HERE / name for name in LONG} else None


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """Run one process more than there are processors: many tests wait most of the time, and some for others in time."""
    return 1 + len(os.sched_getaffinity(0))


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put long files first."""
    places = {HERE / name: place for place, name in enumerate(LONG)}
    assert all(path.is_file() for path in places), "a file that is no longer there is named as long"
    items.sort(key=lambda item: places.get(item.path, len(places)))
