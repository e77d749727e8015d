"""Judges starts at the moment of their main process: by memory in use, and where that is not enough by process lists.

Process lists take the driver's lock on all GPUs, so they are read once a second at most, for all readers together. A
start does not wait for the next lists where memory alone shows that nothing is in the way, or nothing has changed since
the last lists.
"""

import logging
import math
import threading
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.collect.pending_reading import KnownProcesses, PendingReading
from llmhost.collect.worker import Clock, Worker
from llmhost.config.schema import Config
from llmhost.derive.history.events import MainStarted
from llmhost.derive.units_of_interest import units_of_holders
from llmhost.derive.verdict import Judgement, StartReadings, judge
from llmhost.model.gpu import NvmlReport
from llmhost.model.history.unit_history import Start, Verdict
from llmhost.model.host import Host
from llmhost.model.ids import UnitId
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Failed, NotApplicable, Ok, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit, UnitsReport
from llmhost.runtime.mailbox import Mailbox
from llmhost.sources.base import SourceError
from llmhost.starts.start_log import start_line

log = logging.getLogger(__name__)

# Memory in use that long after a main process began may be its own: no engine reaches the GPU earlier.
LATE_SECONDS = 1.0
_VERDICT_SECONDS = 4.0  # for a verdict, from when the start was handed in
_READ_SECONDS = 2.0  # for one reading
_UNITS_SECONDS = 1.0  # for units that are asked for, while other starts wait
_SETTINGS_RETRY_SECONDS = 0.02
_RETRY_SECONDS = 0.1  # at least, between two tries without a verdict
_POLL_SECONDS = 0.005  # for lists or processes that are under way
_MOST_WAITING = 20  # of one unit: a restart loop without a pause must not delay the verdicts of other units
_NOT_COLLECTED = NotApplicable("not asked for a verdict")


@dataclass(slots=True)
class _Case:
    """A start without a verdict yet."""

    step: MainStarted
    unit: Unit  # as it was then
    until: float
    at_start: Ok[NvmlReport] | None = None  # read right after the start
    tried: bool = False  # with `at_start` alone
    listed: Ok[NvmlReport] | None = None  # with process lists
    unknown_because: str = ""  # the reason why it has no verdict yet
    not_before: float = 0.0  # of the next try
    done: bool = False


class Judge:
    """A thread of its own. Each start that is handed in gets a verdict: `unknown` where the driver does not answer."""

    def __init__(
        self,
        *,
        keeper: HistoryKeeper,
        host: Worker[Host],
        memory: Worker[NvmlReport],
        nvml: Worker[NvmlReport],
        processes: Worker[ProcessTable],
        lists_due_in_seconds: Callable[[], float],
        units: Callable[[], tuple[Unit, ...]],
        find_units: Callable[[Iterable[str], float], UnitsReport],
        config: Callable[[], Config],
        clock: Clock,
    ) -> None:
        """`memory` reads memory alone, at any time; `units` gives units as of the last event.

        `find_units` asks systemd, by a deadline, for units of these names as well, and watches them from then on.
        """
        self._keeper = keeper
        self._host = host
        self._memory = memory
        self._lists = PendingReading(nvml, clock, seconds=_READ_SECONDS)
        self._processes = KnownProcesses(processes, clock, seconds=_READ_SECONDS)
        self._lists_due_in_seconds = lists_due_in_seconds
        self._units = units
        self._find_units = find_units
        self._config = config
        self._clock = clock
        self._mailbox = Mailbox[MainStarted]()
        self._behind: dict[tuple[UnitId, str], list[str]] = {}  # of starts that wait: lines that come after theirs
        self._behind_lock = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="llmhost-judge", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def put(self, step: MainStarted) -> None:
        with self._behind_lock:
            self._behind.setdefault((step.unit.id, step.start.invocation_id), [])
        self._mailbox.put(step)

    def log_behind_start(self, unit: UnitId, start: Start, line: str) -> None:
        """Log a line about a run: if its start has no verdict yet, after the line with that."""
        with self._behind_lock:
            behind = self._behind.get((unit, start.invocation_id))
            if behind is not None:
                behind.append(line)
                return
        log.info("%s", line)

    def close(self) -> None:
        """End; starts without a verdict are unknown to the next run."""
        self._mailbox.close()
        with self._behind_lock:
            lines = [line for behind in self._behind.values() for line in behind]
            self._behind.clear()
        for line in lines:
            log.info("%s", line)

    def _run(self) -> None:
        waiting: list[_Case] = []
        while True:
            arrived, closed = self._mailbox.take(self._next_try_seconds(waiting))
            if closed:
                return
            until = self._clock.monotonic() + _VERDICT_SECONDS
            waiting += [_Case(step=step, unit=step.unit, until=until) for step in arrived]
            _bound(waiting)
            try:
                self._judge_due(waiting)
            except Exception as error:
                log.exception("a bug in judging a start")
                for case in waiting:
                    case.until, case.unknown_because = 0.0, f"{type(error).__name__}: {error}"
            now = self._clock.monotonic()
            for case in waiting:
                if case.until <= now and not case.done:
                    self._finish(case, None)
            waiting = [case for case in waiting if not case.done]

    def _next_try_seconds(self, waiting: list[_Case]) -> float | None:
        if not waiting:
            return None
        return max(0.0, min(case.not_before for case in waiting) - self._clock.monotonic())

    def _due(self, cases: list[_Case]) -> list[_Case]:
        now = self._clock.monotonic()
        return [case for case in cases if not case.done and case.not_before <= now < case.until]

    def _judge_due(self, cases: list[_Case]) -> None:
        """Take each case as far as it goes without waiting for process lists or processes."""
        new = [case for case in self._due(cases) if case.at_start is None]
        if new:
            self._read_memory(new)
        due = self._with_settings([case for case in self._due(cases) if case.at_start is not None])
        self._judge_by_memory([case for case in due if not case.tried])
        self._find_lists([case for case in self._due(due) if case.listed is None])
        self._judge_by_lists([case for case in self._due(due) if case.listed is not None])

    def _with_settings(self, cases: list[_Case]) -> list[_Case]:
        """Give the cases whose unit settings are known; systemd may have loaded the unit for this start just now."""
        known = {unit.id: unit.settings for unit in self._units()}
        ready = []
        for case in cases:
            if case.unit.settings is None:
                case.unit = replace(case.unit, settings=known.get(case.unit.id))
            if case.unit.settings is not None:
                ready.append(case)
            else:
                case.unknown_because = "systemd has not told yet what the unit runs"
                case.not_before = self._clock.monotonic() + _SETTINGS_RETRY_SECONDS
        return ready

    def _read_memory(self, cases: list[_Case]) -> None:
        """Read what is in use right now; for those whose main process began a while ago that is no answer."""
        began = self._clock.monotonic()
        until = began + _READ_SECONDS
        report = self._memory.answer(self._memory.ask(until), until)
        if not isinstance(report, Ok):
            self._put_off(cases, report)
            return
        for case in cases:
            late = began - (case.step.start.main_monotonic or began)
            if late <= LATE_SECONDS:
                case.at_start = report
            else:
                case.until, case.unknown_because = began, f"noticed {late:.1f} s after its main process began"

    def _judge_by_memory(self, cases: list[_Case]) -> None:
        """Judge by memory in use right after the start, and by the processes that were read last."""
        for report in {id(case.at_start): case.at_start for case in cases}.values():
            if report is not None:
                group = [case for case in cases if case.at_start is report]
                self._try(group, report, self._processes.fitting(report.value) or _NOT_COLLECTED)
                for case in self._due(group):
                    case.tried = True
                    if _has_lists(report.value):
                        case.listed = report
                    else:
                        case.not_before = self._clock.monotonic() + self._lists_due_in_seconds()

    def _find_lists(self, cases: list[_Case]) -> None:
        if not cases:
            return
        report = self._lists.take()
        if report is None:
            self._poll_soon(cases)
        elif not isinstance(report, Ok):
            self._put_off(cases, report)
        else:
            for case in cases:
                case.listed = report

    def _judge_by_lists(self, cases: list[_Case]) -> None:
        for listed in {id(case.listed): case.listed for case in cases}.values():
            if listed is None:
                continue
            group = [case for case in cases if case.listed is listed]
            table = self._processes.fitting(listed.value) or self._processes.read()
            if table is None:
                self._poll_soon(group)
                continue
            self._try(group, listed, table)
            for case in self._due(group):  # by other lists, maybe
                case.listed = None
                wait = max(_RETRY_SECONDS, self._lists_due_in_seconds())
                case.not_before = self._clock.monotonic() + wait

    def _try(self, cases: list[_Case], report: Ok[NvmlReport], table: Reading[ProcessTable]) -> None:
        until = self._clock.monotonic() + _READ_SECONDS
        units = self._units_with_holders(report.value, table)
        if not isinstance(units, Ok):
            self._put_off(cases, units)
            return
        snapshot = Snapshot(
            at=self._clock.time(),
            at_monotonic=self._clock.monotonic(),
            host=self._host.answer(self._host.ask(until), until),
            nvml=report,
            processes=table,
            units=Ok(UnitsReport(systemd_version="", units=units.value)),
            shm=_NOT_COLLECTED,
            engines=_NOT_COLLECTED,
        )
        readings = StartReadings.of(snapshot, self._config(), self._keeper.history)
        for case in self._due(cases):
            if case.at_start is not None:
                judgement = judge(readings, case.unit, case.at_start.value.used_bytes)
                if isinstance(judgement, Ok):
                    self._finish(case, judgement.value)
                else:
                    case.unknown_because = _reason(judgement)

    def _units_with_holders(self, report: NvmlReport, table: Reading[ProcessTable]) -> Reading[tuple[Unit, ...]]:
        """Give the watched units, and those that hold memory though they are not watched so far: a look is due."""
        units = self._units()
        if not isinstance(table, Ok):
            return Ok(units)
        most_unheeded = self._config().policy.resident_bytes
        heeded = [gpu for gpu in report.gpus if report.used_bytes.get(gpu.uuid, math.inf) > most_unheeded]
        known = {unit.id.name for unit in units}
        new = units_of_holders(heeded, table.value) - known
        if not new:
            return Ok(units)
        try:
            found = self._find_units(new, self._clock.monotonic() + _UNITS_SECONDS)
        except SourceError as error:
            return Failed(error.cause, error.detail)
        return Ok((*units, *(unit for unit in found.units if unit.id.name in new)))

    def _poll_soon(self, cases: list[_Case]) -> None:
        for case in cases:
            case.not_before = self._clock.monotonic() + _POLL_SECONDS

    def _put_off(self, cases: list[_Case], reading: Failed | NotApplicable) -> None:
        """Note the reason, and try again later."""
        for case in cases:
            case.unknown_because = _reason(reading)
            case.not_before = self._clock.monotonic() + _RETRY_SECONDS
            if isinstance(reading, NotApplicable):
                case.until = 0.0

    def _finish(self, case: _Case, judgement: Judgement | None) -> None:
        case.done = True
        try:
            self._record(case, judgement)
        except Exception:
            log.exception("a bug in reporting a start of %s", case.step.unit.id.name)
        with self._behind_lock:
            lines = self._behind.pop((case.step.unit.id, case.step.start.invocation_id), [])
        for line in lines:
            log.info("%s", line)

    def _record(self, case: _Case, judgement: Judgement | None) -> None:
        unit = case.step.unit.id
        start = self._keeper.add_verdict(
            unit,
            case.step.start.invocation_id,
            judgement.verdict if judgement is not None else Verdict.UNKNOWN,
            in_the_way=judgement.in_the_way if judgement is not None else (),
            short=judgement.short if judgement is not None else (),
            unknown_because="" if judgement is not None else case.unknown_because,
        )
        if start is not None:
            log.info("%s", start_line(unit, start, judgement.obstacles if judgement is not None else ()))


def _bound(cases: list[_Case]) -> None:
    """Let the oldest starts of a unit have no verdict where too many of them wait."""
    waiting: Counter[UnitId] = Counter()
    for case in reversed(cases):
        waiting[case.unit.id] += 1
        if waiting[case.unit.id] > _MOST_WAITING:
            case.until, case.unknown_because = 0.0, f"more than {_MOST_WAITING} starts of the unit waited for a verdict"


def _reason(reading: Failed | NotApplicable) -> str:
    if isinstance(reading, NotApplicable):
        return reading.why
    return f"{reading.cause}: {reading.detail}" if reading.detail else str(reading.cause)


def _has_lists(report: NvmlReport) -> bool:
    """Say whether it has the process lists of every GPU that can have them."""
    return all(not isinstance(gpu.holders, Failed) for gpu in report.gpus if gpu.up)
