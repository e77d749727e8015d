"""The guard's remedies: --reap ends leftovers of the unit, --clean-shm removes its stale segments.

They have a thread of their own: the wait goes on meanwhile, and a fault in here does not harm it.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace

from llmhost.act.ending import end
from llmhost.act.removing import BusyError, Remover
from llmhost.assemble.sources import Sources
from llmhost.config.schema import Config
from llmhost.decide.cleanup.steps import Ending, Outcome, Result
from llmhost.decide.guard.remedies import (
    StartingUnit,
    UnprovenError,
    missing_history,
    reaping,
    removals,
    runs_of_ended,
    sessions_of_ended,
    starting_unit,
    to_ask_for_use,
)
from llmhost.decide.guard.state import RemedyProgress
from llmhost.derive.history.observations import with_observation
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process
from llmhost.model.reading import Ok
from llmhost.model.segment import SegmentId, SharedMemory
from llmhost.model.snapshot import Snapshot
from llmhost.sources.base import SourceError
from llmhost.views.guard.remedies import skipped_line, step_line

log = logging.getLogger(__name__)

_READ_SECONDS = 5.0  # for processes, and again for shared memory
_AGAIN_SECONDS = 1.0  # between two passes, after one that has ended something
_IDLE_SECONDS = 5.0  # and after one that has not
_BUSY_SECONDS = 0.2  # between two tries while another llmhost cleans up
_LEAVING_SECONDS = 0.5  # for the step under way, as the guard ends


class Remedies:
    """The remedies of one unit. Its methods are for the thread of the wait."""

    def __init__(
        self,
        unit: UnitId,
        *,
        reap: bool,
        clean_shm: bool,
        sources: Sources,
        config: Config,
        recorded: History,
    ) -> None:
        self._unit = unit
        self._reap = reap
        self._clean_shm = clean_shm
        self._sources = sources
        self._processes, self._shm = sources.processes, sources.shm  # made here, as the wait asks for the first too
        self._config = config
        self._history = recorded
        self._sessions: frozenset[int] = frozenset()  # of ended runs, as of the last pass
        self._snapshot: Snapshot | None = None  # without processes: host and units, as of the last step of the wait
        self._informed = threading.Event()
        self._stopping = threading.Event()
        self._settled = False  # a pass has found nothing to end
        self._began = sources.clock.monotonic()
        self._acting_since: float | None = None
        self._tried: set[ProcessId] = set()
        self._handled: set[SegmentId] = set()
        self._logged: set[object] = set()
        self._stuck: tuple[Process, ...] = ()
        self._thread = threading.Thread(target=self._run, name="llmhost-remedies", daemon=True)
        self._log_once(missing_history(recorded, reap=reap, clean_shm=clean_shm))
        self._thread.start()

    @property
    def progress(self) -> RemedyProgress:
        return RemedyProgress(
            began=self._began, settled=self._settled, acting_since=self._acting_since, stuck=self._stuck
        )

    def take_in(self, snapshot: Snapshot) -> None:
        """Go by these readings of the host and the units from now on; the first one begins the first pass."""
        self._snapshot = snapshot
        self._informed.set()

    def stop(self) -> None:
        """Begin no other step, and let the one under way come to its end, if that does not take long."""
        self._stopping.set()
        self._informed.set()
        self._thread.join(_LEAVING_SECONDS)

    def _run(self) -> None:
        self._informed.wait()
        while not self._stopping.is_set():
            try:
                pause = self._pass()
            except Exception:  # the wait goes on, and so does the start
                log.exception("%s: --reap and --clean-shm end here: this is a bug in llmhost", self._unit.name)
                self._settled = True
                return
            self._stopping.wait(pause)

    def _pass(self) -> float:
        """End and remove what may go now; give the seconds until the next pass."""
        try:
            ended = self._take(self._reaped()) if self._reap else 0
            if self._clean_shm:
                self._take(self._removed())
        except (UnprovenError, SourceError) as error:
            self._log_once(str(error))
            ended = 0
        except BusyError as error:
            self._log_once(f"waits, as {error}")
            return _BUSY_SECONDS
        finally:
            self._acting_since = None
        self._settled = not ended  # else those that were ended may have started others meanwhile
        return _AGAIN_SECONDS if ended else _IDLE_SECONDS

    def _take(self, outcomes: Iterator[Outcome]) -> int:
        """Log each step as it is done; give their number."""
        count = 0
        for outcome in outcomes:
            count += 1
            step = outcome.step
            if isinstance(step, Ending):
                self._tried.add(step.process.id)
            else:
                self._handled.add(step.segment.id)
            well = outcome.result in {Result.DONE, Result.GONE}
            level = logging.INFO if well else logging.WARNING
            if outcome.result is Result.STUCK and isinstance(step, Ending):
                level, self._stuck = logging.ERROR, (*self._stuck, step.process)
            log.log(level, "%s: %s", self._unit.name, step_line(outcome))
        return count

    def _reaped(self) -> Iterator[Outcome]:
        own = self._own()
        self._sessions = sessions_of_ended(own)
        self._history = replace(self._history, process_runs={**self._history.process_runs, **runs_of_ended(own)})
        uses = self._sources.process_use(to_ask_for_use(own), own.table.by_pid.values())
        steps = reaping(own, uses, self._tried)
        for skipped in steps.skipped:
            if isinstance(skipped.subject, Process):
                self._log_once(skipped_line(skipped), (skipped.subject.id, skipped.because))
        if not steps.endings:
            return
        with self._alone():
            self._acting_since = self._sources.clock.monotonic()
            yield from end(steps.endings, procfs=self._sources.paths.procfs, interrupted=self._stopping.is_set)

    def _removed(self) -> Iterator[Outcome]:
        if self._unit not in self._history.segment_units.values():
            return  # it was never seen to hold any
        shared = self._shm.read(self._sources.clock.monotonic() + _READ_SECONDS)
        found, why = removals(self._own(shared), shared, self._config.policy)
        self._log_once(why)
        found = tuple(removal for removal in found if removal.segment.id not in self._handled)
        if not found:
            return
        with Remover(self._sources.paths.shm) as remover:
            for removal in found:
                if self._stopping.is_set():
                    return
                yield remover.remove(removal)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep out others that clean up: a second SIGTERM cuts a process's own clean-up short."""
        with ExitStack() as stack:
            with suppress(OSError):  # without a tmpfs there is no lock
                stack.enter_context(Remover(self._sources.paths.shm))
            yield

    def _own(self, shared: SharedMemory | None = None) -> StartingUnit:
        """Read processes into the history, and find the unit. Raises UnprovenError."""
        now = self._sources.clock.monotonic()
        ticket = self._processes.ask(now + _READ_SECONDS)
        processes = self._processes.answer(ticket, now + _READ_SECONDS)
        known = self._snapshot
        if known is None:
            raise UnprovenError("systemd has not told of the unit")
        snapshot = replace(
            known,
            at=self._sources.clock.time(),
            at_monotonic=self._sources.clock.monotonic(),
            processes=processes,
            shm=Ok(shared) if shared is not None else known.shm,
        )
        self._history = with_observation(self._history, snapshot, self._config.policy)
        return starting_unit(snapshot, self._history, self._unit, os.getpid(), self._sessions)

    def _log_once(self, line: str, about: object = None) -> None:
        key = line if about is None else about
        if line and key not in self._logged:
            self._logged.add(key)
            log.warning("%s: %s", self._unit.name, line)
