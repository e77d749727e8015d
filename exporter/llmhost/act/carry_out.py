"""Carries out a plan of `llmhost clean`, up to Ctrl-C or SIGTERM."""

import signal
from collections.abc import Iterator
from types import FrameType, TracebackType
from typing import Self

from llmhost.act.ending import end
from llmhost.act.removing import Remover
from llmhost.config.paths import Paths
from llmhost.decide.cleanup.steps import CleanupReport, Ending, Outcome, Plan, Result


class Interrupted(BaseException):
    """Raised by a signal before anything was done. A BaseException, so that no handler of faults catches it."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number  # as in a shell


class Interrupts:
    """Handles SIGINT and SIGTERM within its `with`: raises Interrupted, or, while `acting`, only notes the signal."""

    def __init__(self) -> None:
        self.number = 0  # of the first signal; 0: none
        self.acting = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._handle) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        if not self.acting:
            raise Interrupted(number)


def carry_out(plan: Plan, paths: Paths, interrupts: Interrupts) -> CleanupReport:
    """Do the steps of the plan. Once interrupted, no other process gets a signal and no other file is removed.

    The caller keeps other clean-ups out: a second one would send a second SIGTERM.
    """
    if not plan.steps:
        return CleanupReport(plan=plan)
    interrupts.acting = True
    outcomes = tuple(_outcomes(plan, paths, interrupts))
    return CleanupReport(plan=plan, outcomes=outcomes, interrupted_by=interrupts.number)


def _outcomes(plan: Plan, paths: Paths, interrupts: Interrupts) -> Iterator[Outcome]:
    ended = set()
    for outcome in end(plan.endings, procfs=paths.procfs, interrupted=lambda: bool(interrupts.number)):
        if isinstance(outcome.step, Ending) and outcome.result in {Result.DONE, Result.GONE}:
            ended.add(outcome.step.process.id)
        yield outcome
    with Remover(paths.shm) as remover:
        for removal in plan.removals:
            if interrupts.number:
                return
            alive = removal.after - ended
            if alive:
                detail = f"process {min(alive).pid} has not ended, and may come for it"
                yield Outcome(step=removal, result=Result.SPARED, detail=detail)
            else:
                yield remover.remove(removal)
