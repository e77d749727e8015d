"""Looks of the guard's remedies that fail: they prove nothing, and are made again."""

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.fakes.values import snapshot, unit

from llmhost.assemble.sources import Sources
from llmhost.collect.worker import Worker
from llmhost.config.schema import Config, PidNamespace
from llmhost.decide.guard.state import FailedLook, Inform, RemedyProgress
from llmhost.guard.remedies import Remedies
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.sources.base import Source, SourceError
from llmhost.sources.host import HostSource
from llmhost.sources.procfs import ProcfsSource

UNIT = UnitId("vllm.service")
ME = ProcessId(1, 0)
CONFIG = Config(pid_namespace=PidNamespace.TRUST)
BROKEN = "processes cannot be read: unknown (OSError: [Errno 5] broken)"
LATE = SourceError(Cause.TIMEOUT, "3 of 300 processes read")


class FailsAtFirst(Source[Any]):
    """A real source whose first reads fail."""

    def __init__(self, source: Source[Any], *errors: Exception) -> None:
        self._source = source
        self._errors = list(errors)

    def read(self, deadline: float) -> Any:  # noqa: ANN401
        if self._errors:
            raise self._errors.pop(0)
        return self._source.read(deadline)

    def doing(self) -> str:
        return self._source.doing()

    def close(self) -> None:
        self._source.close()


@pytest.fixture
def sources() -> Iterator[Sources]:
    sources = Sources(CONFIG)
    yield sources
    sources.close()


def known(sources: Sources, history: History | None = None, state: str = "activating") -> Inform:
    starts = unit(UNIT.name, state, "start-pre", invocation_id="i", condition_monotonic=1.0)
    host = HostSource(procfs=sources.paths.procfs).read(time.monotonic() + 5)
    return Inform(snapshot=snapshot(host=Ok(host), units=(starts,)), config=CONFIG, recorded=history or History())


def becomes(remedies: Remedies, condition: Callable[[RemedyProgress], object]) -> RemedyProgress:
    until = time.monotonic() + 120
    while not condition(remedies.progress):
        assert time.monotonic() < until, remedies.progress
        time.sleep(0.01)
    return remedies.progress


@pytest.mark.parametrize(
    ("errors", "failed"),
    [
        ((LATE,), FailedLook("processes cannot be read: timeout (3 of 300 processes read)", lasts=False)),
        ((LATE, LATE), FailedLook("processes cannot be read: timeout (3 of 300 processes read)", lasts=False)),
        ((SourceError(Cause.NO_PERMISSION),), FailedLook("processes cannot be read: no permission", lasts=True)),
        (
            (OSError(5, "broken"),),
            FailedLook(BROKEN, lasts=False),
        ),
    ],
)
def test_only_a_look_that_has_succeeded_says_that_nobody_is_to_be_ended(
    sources: Sources, errors: tuple[Exception, ...], failed: FailedLook
) -> None:
    procfs = ProcfsSource(procfs=sources.paths.procfs, trust_pid_namespace=True)
    sources.processes = Worker("procfs", FailsAtFirst(procfs, *errors), sources.clock)
    sources.processes.start()
    remedies = Remedies(UNIT, reap=True, clean_shm=False, sources=sources)
    began = time.monotonic()
    remedies.take_in(known(sources))
    progress = becomes(remedies, lambda progress: progress.failed or progress.settled)
    assert (progress.failed, progress.settled) == (failed, False)
    becomes(remedies, lambda progress: progress.settled and progress.failed is None)
    assert time.monotonic() - began >= len(errors), "a second after each"
    remedies.stop()


def test_what_is_in_use_has_to_be_read_too(sources: Sources, monkeypatch: pytest.MonkeyPatch) -> None:
    readings = iter([{ME: Failed(Cause.NO_PROCFS, "net/tcp")}])
    real = sources.process_use
    monkeypatch.setattr(sources, "process_use", lambda *processes: next(readings, None) or real(*processes))
    remedies = Remedies(UNIT, reap=True, clean_shm=False, sources=sources)
    remedies.take_in(known(sources))
    progress = becomes(remedies, lambda progress: progress.failed or progress.settled)
    assert progress.failed == FailedLook("what is in use could not be read: no procfs (net/tcp)", lasts=True)
    becomes(remedies, lambda progress: progress.settled)
    remedies.stop()


def test_a_look_without_the_history_is_made_again_with_it(sources: Sources) -> None:
    remedies = Remedies(UNIT, reap=True, clean_shm=False, sources=sources)
    remedies.take_in(known(sources))
    becomes(remedies, lambda progress: progress.settled)
    remedies.take_in(known(sources, History(boot_id="b")))
    assert not remedies.progress.settled
    becomes(remedies, lambda progress: progress.settled)
    remedies.stop()


def test_a_unit_that_is_not_starting_proves_nothing(sources: Sources) -> None:
    remedies = Remedies(UNIT, reap=True, clean_shm=False, sources=sources)
    remedies.take_in(known(sources, state="inactive"))
    progress = becomes(remedies, lambda progress: progress.failed)
    assert progress.failed == FailedLook("systemd does not say that a start is under way", lasts=True)
    remedies.stop()
