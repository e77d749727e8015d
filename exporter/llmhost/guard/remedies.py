"""The guard's remedies at work: --reap ends what ended runs of the unit have left, --clean-shm removes its stale files.

They have a thread of their own: the wait goes on meanwhile, and what goes wrong in here costs it nothing.
"""

import logging
import os
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from llmhost.act.ending import end
from llmhost.act.removing import BusyError, Remover
from llmhost.assemble.guard_sources import Surroundings
from llmhost.collect.worker import Clock
from llmhost.config.schema import Config
from llmhost.decide.cleanup.steps import Ending, Outcome, Result
from llmhost.decide.guard.remedies import (
    Own,
    UnprovenError,
    own_of,
    reaping,
    removals,
    to_ask_for_listeners,
    unheard_of,
)
from llmhost.derive.history.observations import advance
from llmhost.model.history.history import History
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.process import Process
from llmhost.model.reading import Ok
from llmhost.model.segment import SegmentId, SharedMemory
from llmhost.model.snapshot import Snapshot
from llmhost.sources.base import SourceError
from llmhost.views.guard.remedies import left_line, step_line, stuck_line

log = logging.getLogger(__name__)

_LOOK_SECONDS = 5.0  # for processes, and again for shared memory
_AGAIN_SECONDS = 1.0  # between two passes where one has done something
_SELDOM_SECONDS = 5.0  # and where it has not
_BUSY_SECONDS = 0.2  # until it is tried again where another llmhost is cleaning up
_MOST_SECONDS = 45.0  # that a start is held back for the first pass, where nothing else does
_UNHEARD_SECONDS = 3.0  # for systemd to tell of the unit
_LEAVING_SECONDS = 0.5  # for the step under way, when the guard ends


class Remedies:
    """One unit's. Its methods are for the thread of the wait."""

    def __init__(
        self,
        unit: UnitId,
        *,
        reap: bool,
        clean_shm: bool,
        surroundings: Surroundings,
        config: Config,
        recorded: History,
        procfs: Path,
        shm: Path,
        clock: Clock,
    ) -> None:
        self._unit = unit
        self._reap = reap
        self._clean_shm = clean_shm
        self._surroundings = surroundings
        self._config = config
        self._history = recorded
        self._procfs = procfs
        self._shm_path = shm
        self._clock = clock
        self._began = clock.monotonic()
        self._seen: Snapshot | None = None  # without processes: host and units, as of the last step of the wait
        self._may_look = threading.Event()
        self._over = threading.Event()
        self._settled = False  # a pass has found nobody to end
        self._acting_since: float | None = None
        self._tried: set[ProcessId] = set()
        self._handled: set[SegmentId] = set()
        self._told: set[object] = set()
        self._stuck: tuple[Process, ...] = ()
        self._thread = threading.Thread(target=self._run, name="llmhost-remedies", daemon=True)
        self._tell_once(unheard_of(recorded, reap=reap, clean_shm=clean_shm))
        self._thread.start()

    @property
    def pending(self) -> bool:
        """Whether a start has to wait: nobody has looked yet, or somebody is being ended."""
        since = self._acting_since
        if (self._settled and since is None) or not self._thread.is_alive():
            return False
        waited = self._clock.monotonic() - (self._began if since is None else since)
        if waited >= _MOST_SECONDS:
            self._tell_once(f"not done with what earlier runs have left after {_MOST_SECONDS:.0f} s")
            return False
        return self._may_look.is_set() or waited < _UNHEARD_SECONDS

    @property
    def stuck(self) -> str:
        """Name the processes that do not die; "" where there are none."""
        return "; ".join(stuck_line(one) for one in self._stuck)

    def take_in(self, snapshot: Snapshot) -> None:
        """Take what the wait knows of the host and of systemd."""
        if isinstance(snapshot.units, Ok) and isinstance(snapshot.host, Ok):
            self._seen = snapshot
            self._may_look.set()
        elif self._clock.monotonic() - self._began >= _UNHEARD_SECONDS and self._seen is None:
            self._tell_once("systemd does not tell of the unit: nothing can be told to be of an ended run")

    def stop(self) -> None:
        """Begin no other step, and let the one under way come to its end, if that does not take long."""
        self._over.set()
        self._may_look.set()
        self._thread.join(_LEAVING_SECONDS)

    def _run(self) -> None:
        self._may_look.wait()
        while not self._over.is_set():
            try:
                pause = self._pass()
            except Exception:  # the wait goes on, and so does the start
                log.exception("%s: --reap and --clean-shm end here: this is a bug in llmhost", self._unit.name)
                self._settled = True
                return
            self._over.wait(pause)

    def _pass(self) -> float:
        """Do once what there is to do; give the seconds until the next time."""
        try:
            ended = self._take(self._reaped()) if self._reap else 0
            if self._clean_shm:
                self._take(self._removed())
        except (UnprovenError, SourceError) as error:
            self._tell_once(str(error))
            ended = 0
        except BusyError as error:
            self._tell_once(f"waits, as {error}")
            return _BUSY_SECONDS
        finally:
            self._acting_since = None
        self._settled = not ended  # else who was ended may have made others meanwhile
        return _AGAIN_SECONDS if ended else _SELDOM_SECONDS

    def _take(self, outcomes: Iterator[Outcome]) -> int:
        """Tell of each as it is done; give how many there were."""
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
        asked = to_ask_for_listeners(own)
        steps = reaping(own, self._surroundings.sources.listening(asked), self._tried)
        for left in steps.left:
            if isinstance(left.subject, Process):
                self._tell_once(left_line(left), (left.subject.id, left.because))
        if not steps.endings:
            return
        with self._alone():
            self._acting_since = self._clock.monotonic()
            yield from end(steps.endings, procfs=self._procfs, interrupted=self._over.is_set)

    def _removed(self) -> Iterator[Outcome]:
        if self._unit not in self._history.segment_units.values():
            return  # nobody has seen it hold any
        shared = self._surroundings.sources.shm.read(self._clock.monotonic() + _LOOK_SECONDS)
        found, why = removals(self._own(shared), shared, self._config.policy)
        self._tell_once(why)
        found = tuple(one for one in found if one.segment.id not in self._handled)
        if not found:
            return
        with Remover(self._shm_path) as remover:
            for removal in found:
                if self._over.is_set():
                    return
                yield remover.remove(removal)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Keep others that clean up from ending the same processes: a second SIGTERM cuts their own clean-up short."""
        with ExitStack() as stack:
            with suppress(OSError):  # where there is no tmpfs there is nothing to be alone by
                stack.enter_context(Remover(self._shm_path))
            yield

    def _own(self, shared: SharedMemory | None = None) -> Own:
        """Look at processes, and remember what that tells. Raises UnprovenError."""
        now = self._clock.monotonic()
        ticket = self._surroundings.processes.ask(now + _LOOK_SECONDS)
        processes = self._surroundings.processes.answer(ticket, now + _LOOK_SECONDS)
        seen = self._seen
        if seen is None:
            raise UnprovenError("systemd has not told of the unit")
        snapshot = replace(
            seen,
            at=self._clock.time(),
            at_monotonic=self._clock.monotonic(),
            processes=processes,
            shm=Ok(shared) if shared is not None else seen.shm,
        )
        self._history = advance(self._history, snapshot, self._config.policy)
        return own_of(snapshot, self._history, self._unit, os.getpid())

    def _tell_once(self, line: str, about: object = None) -> None:
        key = line if about is None else about
        if line and key not in self._told:
            self._told.add(key)
            log.warning("%s: %s", self._unit.name, line)
