"""What the guard says of what it does away with: a line for each step. Pure."""

from collections.abc import Mapping

from llmhost.decide.cleanup.processes import named
from llmhost.decide.cleanup.steps import Condition, Ending, Outcome, Result, Skipped
from llmhost.model.process import Process
from llmhost.views.text import clean

_KIND: Mapping[Condition, str] = {
    Condition.TRACKER: "tracker",
    Condition.ORPHAN: "orphan",
    Condition.LEFTOVER: "leftover",
}


def step_line(outcome: Outcome) -> str:
    """Tell what became of a process or file."""
    step, detail = outcome.step, clean(outcome.detail)
    if isinstance(step, Ending):
        who = f"{_KIND[step.condition]} {clean(named(step.process))}, {step.because}"
        if outcome.result is Result.DONE:
            return f"ended {who}: {detail}, {outcome.seconds:.1f} s"
        if outcome.result is Result.GONE:
            return f"did not have to end {who}: {detail}"
        return f"could not end {who}: {detail}"
    what = f"{clean(step.segment.path)} from shared memory ({step.segment.kind}, {step.because})"
    if outcome.result is Result.DONE:
        return f"removed {what}"
    return f"did not remove {what}: {detail}"


def left_line(left: Skipped) -> str:
    """Tell what is left alone, and why."""
    what = clean(named(left.subject)) if isinstance(left.subject, Process) else clean(left.subject.path)
    return f"leaves {what} alone: {clean(left.because)}"


def stuck_line(process: Process) -> str:
    """Name one that does not die, as part of another line."""
    return f"process {clean(named(process))} of an ended run does not die, and only a GPU reset or a reboot ends it"
