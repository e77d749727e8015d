"""The incident: a plain unit fails again and again, one with the guard starts once, first time, as soon as it can."""

from collections.abc import Iterator

import pytest
from tests.fakes.booted import needs_boot
from tests.guard.incident import GUARD, LOOP, PLAIN, RELEASE_SECONDS, Incident, incident


@pytest.fixture(scope="module")
def played() -> Iterator[Incident]:
    needs_boot()
    with incident() as found:
        yield found


def test_the_plain_unit_fails_as_vllm_does_again_and_again(played: Incident) -> None:
    """With RestartSec=10, tries at 10, 20 and 30 s find nothing free; that at 40 s does."""
    plain = played.ways[PLAIN]
    assert (plain.refusals, plain.restarts) == (3, 4)
    assert "is less than desired GPU memory utilization" in plain.log


def test_the_guarded_unit_starts_once_first_time(played: Incident) -> None:
    guarded = played.ways[GUARD]
    assert (guarded.refusals, guarded.restarts) == (0, 1)
    assert 1.0 <= guarded.late_seconds < 5, "it settles for a second; the next try of the plain unit is 6 s late"


def test_the_wait_is_in_the_journal_and_in_the_metrics(played: Incident) -> None:
    log = played.ways[GUARD].log
    (waits, *_) = [line for line in log.splitlines() if " waits for GPU 2" in line]
    assert "85.5 GiB" in waits
    (free,) = [line for line in log.splitlines() if ": free after " in line][1:]
    assert free
    series = played.host.exporter.series()
    runs = {dict(labels)["verdict"]: value for labels, value in series["llmhost_guard_runs_total"].items()}
    assert (runs["free"], runs["held"]) == (2, 0)
    (waited,) = series["llmhost_guard_last_wait_seconds"].values()
    # RestartSec=30 of the drop-in, so that it comes some 4 s before the memory does; and settles for a second
    assert RELEASE_SECONDS - 30 - 1.5 < waited < RELEASE_SECONDS - 30 + 4


def test_each_start_is_judged_as_it_was(played: Incident) -> None:
    exporter = played.host.exporter
    assert exporter.starts(f"{PLAIN}.service") == {"manual clean": 1, "auto resident": 3, "auto clean": 1}
    assert exporter.starts(f"{GUARD}.service") == {"manual clean": 1, "auto clean": 1}


def test_the_bash_loop_runs_a_process_each_time_it_checks(played: Incident) -> None:
    loop = played.ways[LOOP]
    assert loop.refusals == 0
    assert played.nvidia_smi_runs >= (RELEASE_SECONDS - 10) / 2
