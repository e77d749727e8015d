"""What became of a plan. Pure."""

from dataclasses import dataclass

from llmhost.decide.cleanup.steps import Ending, Outcome, Plan, Removal, Result, Step


@dataclass(frozen=True, slots=True, kw_only=True)
class Done:
    """`plan` is the one that was carried out, up to `interrupted_by`, a signal's number; 0: to its end."""

    plan: Plan
    outcomes: tuple[Outcome, ...] = ()
    interrupted_by: int = 0

    @property
    def not_begun(self) -> tuple[Step, ...]:
        begun = {id(outcome.step) for outcome in self.outcomes}
        return tuple(step for step in self.plan.steps if id(step) not in begun)

    @property
    def complete(self) -> bool:
        """Whether nothing is left undone that ought to be. What was spared is in use: that it stays is right."""
        failed = {Result.DENIED, Result.STUCK}
        return not self.not_begun and not any(outcome.result in failed for outcome in self.outcomes)

    @property
    def freed_gpu_bytes(self) -> int:
        """Of those that ended, as far as the driver said what they held."""
        return sum(step.gpu_bytes or 0 for step in self._done() if isinstance(step, Ending))

    @property
    def freed_shm_bytes(self) -> int:
        return sum(step.segment.allocated_bytes for step in self._done() if isinstance(step, Removal))

    def _done(self) -> tuple[Step, ...]:
        return tuple(outcome.step for outcome in self.outcomes if outcome.result is Result.DONE)
