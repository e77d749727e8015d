"""The log lines of the guard's remedies. Imported with the remedies alone: a verdict must not wait for it. Pure."""

from llmhost.decide.cleanup.steps import Ending, Outcome, Result, Skipped
from llmhost.model.process import Process
from llmhost.views.text import clean


def step_line(outcome: Outcome) -> str:
    """Write the line for a process or segment that was dealt with."""
    step, detail = outcome.step, clean(outcome.detail)
    if isinstance(step, Ending):
        who = f"{step.condition} {clean(step.process.name)}, {step.because}"
        if outcome.result is Result.DONE:
            return f"ended {who}: {detail}, {outcome.seconds:.1f} s"
        if outcome.result is Result.GONE:
            return f"did not have to end {who}: {detail}"
        return f"could not end {who}: {detail}"
    what = f"{clean(step.segment.path)} from shared memory ({step.segment.kind}, {step.because})"
    if outcome.result is Result.DONE:
        return f"removed {what}"
    return f"did not remove {what}: {detail}"


def skipped_line(skipped: Skipped) -> str:
    """Write the line for a process or segment that is left alone."""
    what = clean(skipped.subject.name) if isinstance(skipped.subject, Process) else clean(skipped.subject.path)
    return f"leaves {what} alone: {clean(skipped.because)}"
