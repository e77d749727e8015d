"""`llmhost clean` of written hosts, as people and as programs read it: a dry run as root, of all users."""

import json
from pathlib import Path

import pytest
from tests.hosts.views import view_of
from tests.hosts.written import HOSTS, looked_at, read

from llmhost.assemble.sources import Sources
from llmhost.config.paths import Paths
from llmhost.decide.cleanup.plan import plan, seconds_to_wait, to_ask_for_use
from llmhost.decide.cleanup.steps import CleanupRequest
from llmhost.model.reading import Ok
from llmhost.views.clean.as_json import clean_json
from llmhost.views.clean.text import plan_text
from llmhost.views.text import columns

SHOWN = (
    "bus-down",
    "container-with-its-own-cgroups",
    "foreign-pid-namespace",
    "left-over-by-many",
    "orphans-adopted-by-a-shell",
    "orphans-adopted-by-a-subreaper",
    "orphans-adopted-by-a-users-manager",
    "orphans-of-a-removed-container",
    "sglang-schedulers-escaped",
    "shm-flooded-by-stale-segments",
    "shm-full-of-deleted-files",
    "shm-in-flight",
    "shm-left-by-a-killed-tree",
    "shm-of-a-running-engine",
    "shm-with-an-unreadable-process",
    "started-beside-leftovers",
    "trackers-of-others",
    "workers-on-their-way-out",
)


@pytest.mark.parametrize("name", SHOWN)
def test_what_would_be_cleaned_on_a_written_host_is_the_expected(
    name: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    with looked_at(read(name), tmp_path) as observed:
        view = view_of(observed)
        table = view.snapshot.processes
        everybody = tuple(table.value.by_pid.values()) if isinstance(table, Ok) else ()
        shm = tmp_path / "shm" if (tmp_path / "shm").is_dir() else Path("/dev/shm")
        paths = Paths(procfs=tmp_path / "proc", shm=shm)
        process_context = Sources(paths=paths).process_context(tuple(to_ask_for_use(view)), everybody)
        planned = plan(view, CleanupRequest(uid=0, all_users=True), process_context)
    text = plan_text(planned, seconds_to_wait(planned, view.policy))
    expected = HOSTS / name / "expected" / "clean.txt"
    if request.config.getoption("--update-golden"):
        expected.write_text(text)
    assert max(columns(line) for line in text.splitlines()) <= 80
    assert text == expected.read_text()
    document = json.loads(clean_json(planned))
    assert [len(document[key]) for key in ("endings", "removals", "waiting", "left")] == [
        len(planned.endings),
        len(planned.removals),
        len(planned.waiting),
        len(planned.skipped),
    ]
