"""The guard's remedies: --reap ends leftovers of the unit, --clean-shm removes its stale segments.

They have a thread of their own: the wait goes on meanwhile, and a fault in here does not harm it. A pass that could not
look, for whatever reason, proves nothing: another one follows a second later.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace

from llmhost.act.ending import end
from llmhost.act.removing import Remover
from llmhost.assemble.sources import Sources
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
from llmhost.decide.guard.state import FailedLook, Inform, RemedyProgress
from llmhost.decide.guard.trouble import lasts
from llmhost.derive.history.observations import with_observation
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.segment import SegmentId, SharedMemory
from llmhost.runtime.clock_pair import read_together
from llmhost.sources.base import SourceError
from llmhost.state.cleanup_lock import BusyError, cleanup_lock
from llmhost.state.directory import StoreError
from llmhost.views.guard.remedies import skipped_line, step_line

log = logging.getLogger(__name__)

_READ_SECONDS = 5.0  # for processes, and again for shared memory
_AGAIN_SECONDS = 1.0  # between two passes, after one that has ended something, or could not look
_IDLE_SECONDS = 5.0  # and after one that has found nothing to end
_BUSY_SECONDS = 0.2  # between two tries while another llmhost cleans up
_MOST_BUSY_SECONDS = 25.0  # that it is waited for; it has ended processes and trackers by then, unless it is stopped
_LEAVING_SECONDS = 0.5  # for the step under way, as the guard ends
_NO_ANSWER = frozenset({Cause.NO_PROCFS, Cause.TIMEOUT, Cause.UNKNOWN})  # to what is in use


class Remedies:
    """The remedies of one unit. Its methods are for the thread of the wait."""

    def __init__(self, unit: UnitId, *, reap: bool, clean_shm: bool, sources: Sources) -> None:
        self._unit = unit
        self._reap = reap
        self._clean_shm = clean_shm
        self._sources = sources
        self._processes, self._shm = sources.processes, sources.shm  # made here, as the wait asks for the first too
        self._known: Inform | None = None  # as of the last step of the wait; the snapshot is without processes
        self._went_by: Inform | None = None  # in the last pass
        self._history = History()  # the recorded one, with what was observed since
        self._sessions: frozenset[int] = frozenset()  # of ended runs, as of the last pass
        self._lock = threading.Lock()
        self._due = threading.Event()
        self._stopping = threading.Event()
        self._settled = False  # a pass has looked, and has found nothing to end
        self._failed: FailedLook | None = None  # of the last look, as the next of the one under way
        self._failing: FailedLook | None = None
        self._broken = False  # a bug has ended it
        self._began = sources.clock.monotonic()
        self._acting_since: float | None = None
        self._busy_since: float | None = None  # another llmhost cleans up
        self._tried: set[ProcessId] = set()
        self._handled: set[SegmentId] = set()
        self._logged: set[object] = set()
        self._stuck: tuple[Process, ...] = ()
        self._thread = threading.Thread(target=self._run, name="llmhost-remedies", daemon=True)
        self._thread.start()

    @property
    def progress(self) -> RemedyProgress:
        return RemedyProgress(
            began=self._began,
            settled=self._settled or self._broken,
            failed=self._failed,
            acting_since=self._acting_since,
            stuck=self._stuck,
        )

    def take_in(self, known: Inform) -> None:
        """Go by these readings and files from now on; the first ones begin the first pass."""
        with self._lock:
            before, self._known = self._known, known
            if known.has_files_of(before):
                return
            self._settled = False  # what was found by now, was found without these files
        self._log_once(missing_history(known.recorded, reap=self._reap, clean_shm=self._clean_shm))
        self._due.set()

    def stop(self) -> None:
        """Begin no other step, and let the one under way come to its end, if that does not take long."""
        self._stopping.set()
        self._due.set()
        self._thread.join(_LEAVING_SECONDS)

    def _run(self) -> None:
        pause = None  # until the first readings
        while True:
            self._due.wait(pause)
            self._due.clear()
            if self._stopping.is_set() or self._known is None:
                return
            try:
                pause = self._pass(self._known)
            except Exception:  # the wait goes on, and so does the start
                log.exception("%s: --reap and --clean-shm end here: this is a bug in llmhost", self._unit.name)
                self._broken = True
                return

    def _pass(self, known: Inform) -> float:
        """End and remove what may go now; give the seconds until the next pass."""
        ended, pause = 0, _AGAIN_SECONDS
        self._failing = None
        try:
            if not known.has_files_of(self._went_by):  # what was observed by another config may be wrong
                self._went_by, self._history = known, known.recorded
            ended = self._take(self._reaped(known)) if self._reap else 0
            if self._clean_shm:
                self._take(self._removed(known))
        except UnprovenError as error:
            self._failing = FailedLook(str(error), error.lasts)
        except SourceError as error:
            self._failing = FailedLook(str(error), lasts(Failed(error.cause)))
        except OSError as error:
            self._failing = FailedLook(str(error), isinstance(error, PermissionError))
        except BusyError as error:
            self._failing, pause = FailedLook(f"waits, as {error}", lasts=False), _BUSY_SECONDS
        finally:
            self._acting_since = None
        if self._failing is None and not ended:
            self._busy_since = None
        if self._failing is not None:
            self._log_once(self._failing.why, self._failing.why.split(":")[0])  # once for each input, not each detail
        with self._lock:
            self._failed = self._failing
            # those that were ended may have started others meanwhile
            self._settled = self._failing is None and not ended and known.has_files_of(self._known)
        return _IDLE_SECONDS if self._settled else pause

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

    def _reaped(self, known: Inform) -> Iterator[Outcome]:
        own = self._own(known)
        self._sessions = sessions_of_ended(own)
        self._history = replace(self._history, process_runs={**self._history.process_runs, **runs_of_ended(own)})
        uses = self._sources.process_use(to_ask_for_use(own), own.table.by_pid.values())
        steps = reaping(own, uses, self._tried)
        unread = [failed for failed in uses.values() if isinstance(failed, Failed) and failed.cause in _NO_ANSWER]
        if unread:
            self._failing = FailedLook(f"what is in use could not be read: {unread[0].words}", lasts(unread[0]))
        for skipped in steps.skipped:
            if isinstance(skipped.subject, Process):
                self._log_once(skipped_line(skipped), (skipped.subject.id, skipped.because))
        if not steps.endings:
            return
        with self._alone():
            self._acting_since = self._sources.clock.monotonic()
            yield from end(steps.endings, procfs=self._sources.paths.procfs, interrupted=self._stopping.is_set)

    def _removed(self, known: Inform) -> Iterator[Outcome]:
        held = {segment for segment, unit in self._history.segment_units.items() if unit == self._unit}
        if not held:
            return  # it was never seen to hold any
        shared = self._shm.read(self._sources.clock.monotonic() + _READ_SECONDS)
        if any(segment.id in held - self._handled and segment.holders is None for segment in shared.segments):
            self._failing = FailedLook("who holds its shared memory could not be read", lasts=shared.uninspected > 0)
        found, why = removals(self._own(known, shared), shared, known.config.policy)
        self._log_once(why)
        found = tuple(removal for removal in found if removal.segment.id not in self._handled)
        if not found:
            return
        with self._alone(), Remover(self._sources.paths.shm) as remover:
            for removal in found:
                if self._stopping.is_set():
                    return
                yield remover.remove(removal)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep out others that clean up, and wait for them, but not for ever. Raises BusyError: try again."""
        now = self._sources.clock.monotonic()
        with ExitStack() as stack:
            try:
                stack.enter_context(cleanup_lock(self._sources.paths.run))
            except StoreError as error:
                self._log_once(str(error))
            except BusyError as error:
                self._busy_since = now if self._busy_since is None else self._busy_since
                if now - self._busy_since < _MOST_BUSY_SECONDS:
                    raise
                self._log_once(f"waits no longer, though {error}")
            else:
                self._busy_since = None
            yield

    def _own(self, known: Inform, shared: SharedMemory | None = None) -> StartingUnit:
        """Read processes into the history, and find the unit. Raises UnprovenError."""
        now = self._sources.clock.monotonic()
        ticket = self._processes.ask(now + _READ_SECONDS)
        processes = self._processes.answer(ticket, now + _READ_SECONDS)
        at_monotonic, at = read_together(self._sources.clock.monotonic, self._sources.clock.time)
        snapshot = replace(
            known.snapshot,
            at=at,
            at_monotonic=at_monotonic,
            processes=processes,
            shm=Ok(shared) if shared is not None else known.snapshot.shm,
        )
        self._history = with_observation(self._history, snapshot, known.config.policy)
        return starting_unit(snapshot, self._history, self._unit, os.getpid(), self._sessions)

    def _log_once(self, line: str, about: object = None) -> None:
        key = line if about is None else about
        if line and key not in self._logged:
            self._logged.add(key)
            log.warning("%s: %s", self._unit.name, line)
