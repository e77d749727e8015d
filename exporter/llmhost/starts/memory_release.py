"""Times memory releases: reads memory in use once a second after the end of a run, for three minutes at most."""

import logging
import threading
from collections.abc import Callable

from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.collect.worker import Clock, Worker
from llmhost.config.schema import Config
from llmhost.derive.history.events import Ended
from llmhost.derive.memory_release import PendingRelease, after_reading, pending_release
from llmhost.derive.requirements import requirements_of
from llmhost.model.gpu import NvmlReport
from llmhost.model.history.history import Holdings
from llmhost.model.history.unit_history import Verdict
from llmhost.model.host import Host
from llmhost.model.ids import RunId, UnitId
from llmhost.model.reading import NotApplicable, Ok
from llmhost.model.snapshot import Snapshot
from llmhost.runtime.mailbox import Mailbox

log = logging.getLogger(__name__)

INTERVAL_SECONDS = 1.0
GIVE_UP_SECONDS = 180.0
_READ_SECONDS = 0.8
_NOT_COLLECTED = NotApplicable("not collected for a memory release")


class ReleaseTimer:
    """A thread of its own, which sleeps while no release is pending.

    While a release of a unit is pending, the ends of its further runs change nothing: what a refused run leaves is what
    it found.
    """

    def __init__(
        self,
        *,
        keeper: HistoryKeeper,
        host: Worker[Host],
        memory: Worker[NvmlReport],
        config: Callable[[], Config],
        clock: Clock,
    ) -> None:
        self._keeper = keeper
        self._host = host
        self._memory = memory
        self._config = config
        self._clock = clock
        self._pending: dict[UnitId, PendingRelease] = {}
        self._mailbox = Mailbox[Ended]()
        self._thread = threading.Thread(target=self._run, name="llmhost-release", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, step: Ended) -> None:
        """Hand in the end of a run; called from any thread."""
        self._mailbox.put(step)

    def close(self) -> None:
        self._mailbox.close()

    def _run(self) -> None:
        due = 0.0
        while True:
            ended, closed = self._mailbox.take(max(0.0, due - self._clock.monotonic()) if self._pending else None)
            if closed:
                return
            try:
                if ended:
                    self._add(ended)
                if self._pending and self._clock.monotonic() >= due:
                    due = self._clock.monotonic() + INTERVAL_SECONDS
                    self._check()
            except Exception:
                log.exception("a bug in watching memory after the end of a run")
                self._pending.clear()

    def _add(self, ended: list[Ended]) -> None:
        """Add the runs whose memory is not back right away.

        A run without an observation, and whose start was not clean, may have been refused by what others hold.
        """
        holdings = self._keeper.history.holdings
        steps = [
            step
            for step in ended
            if step.start.main_monotonic is not None
            and step.start.end is not None
            and step.start.end.result  # else its end was not observed
            and step.unit.id not in self._pending
            and (step.start.verdict is Verdict.CLEAN or _was_observed(step, holdings.get(step.unit.id)))
        ]
        report = self._read() if steps else None
        if report is None:
            return
        until = self._clock.monotonic() + _READ_SECONDS
        snapshot = Snapshot(
            at=self._clock.time(),
            at_monotonic=self._clock.monotonic(),
            host=self._host.answer(self._host.ask(until), until),
            nvml=Ok(report),
            processes=_NOT_COLLECTED,
            units=_NOT_COLLECTED,
            shm=_NOT_COLLECTED,
            engines=_NOT_COLLECTED,
        )
        config, history = self._config(), self._keeper.history
        for step in steps:
            unit, start = step.unit, step.start
            release = pending_release(
                RunId(unit=unit.id, invocation_id=start.invocation_id),
                start.began_monotonic + (start.end.seconds if start.end is not None else 0.0),
                gpus=requirements_of(unit, (), snapshot, config, history).gpus,
                used_at_end=report.used_bytes,
                holdings=history.holdings.get(unit.id),
                policy=config.policy,
            )
            if release is not None:
                self._pending[unit.id] = release

    def _check(self) -> None:
        report = self._read()
        now = self._clock.monotonic()
        for unit, release in list(self._pending.items()):
            took, invocation_id = now - release.ended_monotonic, release.run.invocation_id
            still = release if report is None else after_reading(release, report.used_bytes)
            if still is None:
                del self._pending[unit]
                log.info("release unit=%s not timed: others' memory changed invocation_id=%s", unit.name, invocation_id)
            elif not still.back_at_bytes:
                del self._pending[unit]
                self._keeper.add_release(unit, took)
                log.info("release unit=%s after=%.1fs invocation_id=%s", unit.name, took, invocation_id)
            elif took <= GIVE_UP_SECONDS:
                self._pending[unit] = still
            else:
                del self._pending[unit]
                log.info("release unit=%s not seen after=%.0fs invocation_id=%s", unit.name, took, invocation_id)

    def _read(self) -> NvmlReport | None:
        until = self._clock.monotonic() + _READ_SECONDS
        report = self._memory.answer(self._memory.ask(until), until)
        return report.value if isinstance(report, Ok) else None


def _was_observed(step: Ended, holdings: Holdings | None) -> bool:
    return holdings is not None and holdings.invocation_id == step.start.invocation_id
