"""Carrying out a plan of `llmhost clean`, and what becomes of that at Ctrl-C or SIGTERM."""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from types import FrameType, TracebackType
from typing import Self

from llmhost.act.ending import end
from llmhost.act.removing import BusyError, Remover
from llmhost.config.paths import Paths
from llmhost.decide.cleanup.done import Done
from llmhost.decide.cleanup.steps import Ending, Outcome, Plan, Removal, Result


class Interrupted(BaseException):
    """Before anything was done; no Exception, so that nobody takes it for a fault."""

    def __init__(self, number: int) -> None:
        super().__init__()
        self.status = 128 + number  # as a shell has it


class Interrupts:
    """Until the end of its `with`, SIGINT and SIGTERM raise Interrupted, or, while acting, are only taken down."""

    def __init__(self) -> None:
        self.number = 0  # of the first that came; 0: none
        self.acting = False

    def __enter__(self) -> Self:
        self._before = {number: signal.signal(number, self._came) for number in (signal.SIGINT, signal.SIGTERM)}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)

    def _came(self, number: int, _frame: FrameType | None) -> None:
        self.number = self.number or number
        if not self.acting:
            raise Interrupted(number)


def carried_out(plan: Plan, paths: Paths, interrupts: Interrupts) -> Done:
    """Do what is in the plan. Once interrupted, nobody else is told to end, and no other file is removed.

    One clean-up at a time does that: another one's would end processes with a second SIGTERM, which cuts their own
    cleaning up short. Then the plan is refused.
    """
    if not plan.steps:
        return Done(plan=plan)
    interrupts.acting = True
    try:
        with _only_one(paths, plan) as remover:
            outcomes = tuple(_outcomes(plan, paths, remover, interrupts))
    except BusyError as error:
        return Done(plan=Plan(refused=str(error)))
    return Done(plan=plan, outcomes=outcomes, interrupted_by=interrupts.number)


@contextmanager
def _only_one(paths: Paths, plan: Plan) -> Iterator[Remover | None]:
    """Be alone, which a tmpfs is needed for: where there is none there is nothing to remove either."""
    with ExitStack() as stack:
        remover = None
        try:
            remover = stack.enter_context(Remover(paths.shm))
        except OSError:
            if plan.removals:
                raise
        yield remover


def _outcomes(plan: Plan, paths: Paths, remover: Remover | None, interrupts: Interrupts) -> Iterator[Outcome]:
    ended = set()
    for outcome in end(plan.endings, procfs=paths.procfs, interrupted=lambda: bool(interrupts.number)):
        if isinstance(outcome.step, Ending) and outcome.result in {Result.DONE, Result.GONE}:
            ended.add(outcome.step.process.id)
        yield outcome
    for removal in plan.removals:
        if interrupts.number:
            return
        alive = removal.after - ended
        if alive:
            pid = min(alive).pid
            yield Outcome(
                step=removal, result=Result.SPARED, detail=f"process {pid} has not ended, and may come for it"
            )
        elif remover is not None:
            yield _removed(removal, remover)


def _removed(removal: Removal, remover: Remover) -> Outcome:
    """Remove it; that we lack processes or descriptors for that must not cost the account of what was done."""
    try:
        return remover.remove(removal)
    except OSError as error:
        return Outcome(step=removal, result=Result.DENIED, detail=f"cannot check it: {error.strerror}")
