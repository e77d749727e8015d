"""`llmhost clean` for people: the plan, the outcomes, and what is skipped. Pure."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from llmhost.decide.cleanup.steps import CleanupReport, Ending, Outcome, Plan, Removal, Result, Skipped, Step
from llmhost.model.process import Process
from llmhost.model.segment import Segment
from llmhost.views.text import WIDTH, Line, Style, columns, count, cut, folded, padded, plain, rendered, size, span

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_NAMES_SHOWN = 3  # of many; --json has them all
_INDENT = "      "
_RESULTS: Mapping[Result, tuple[str, str, Style]] = {  # the word for an ending, and for a removal
    Result.DONE: ("ended", "removed", Style.GOOD),
    Result.GONE: ("gone by itself", "gone by itself", Style.GOOD),
    Result.SPARED: ("spared", "spared", Style.PLAIN),
    Result.DENIED: ("not allowed", "not allowed", Style.BAD),
    Result.FAILED: ("failed", "failed", Style.BAD),
    Result.STUCK: ("does not die", "stuck", Style.BAD),
}


def plan_text(plan: Plan, seconds_to_wait: float, *, width: int = WIDTH, colour: bool = False) -> str:
    """Show a dry run. `seconds_to_wait` is the time between the two observations of --apply."""
    return rendered(_planned(plan, seconds_to_wait, width), width=width, colour=colour)


def report_text(report: CleanupReport, *, width: int = WIDTH, colour: bool = False) -> str:
    return rendered(_report(report, width), width=width, colour=colour)


def _planned(plan: Plan, seconds_to_wait: float, width: int) -> Iterator[Line]:
    if plan.refused:
        yield from _refused(plan, width)
        return
    yield from _steps(plan.endings, "TO END", width)
    yield from _steps(plan.removals, "TO REMOVE", width)
    yield from _steps(plan.waiting, "NOT WATCHED FOR LONG ENOUGH YET", width)
    yield from _not_touched(plan, width)
    if plan.steps:
        yield from folded(f"would clean {_total(plan.steps)}", width=width, style=Style.HEADING)
    if plan.waiting:
        also = "and perhaps" if plan.steps else "would perhaps clean"
        yield from folded(f"{also} {_total(plan.waiting)}", width=width, style=Style.HEADING)
    if plan.steps or plan.waiting:
        after = f"--apply looks, waits {span(seconds_to_wait)}, looks again, and does what both looks say"
        yield from folded(f"nothing was done; {after}", width=width)
    else:
        yield plain(_nothing_to_do(plan))


def _report(report: CleanupReport, width: int) -> Iterator[Line]:
    plan = report.plan
    if plan.refused:
        yield from _refused(plan, width)
        return
    if report.outcomes:
        yield from _outcomes(report.outcomes, width)
        yield ()
    yield from _steps(
        report.not_begun, "NOT BEGUN, AS IT WAS INTERRUPTED" if report.interrupted_by else "NOT BEGUN", width
    )
    yield from _steps(plan.waiting, "NOT WATCHED FOR LONG ENOUGH YET", width)
    yield from _not_touched(plan, width)
    if plan.gone:
        went = "ended" if all(isinstance(step, Ending) for step in plan.gone) else "went"
        themselves = "itself" if len(plan.gone) == 1 else "themselves"
        yield from folded(f"{_total(plan.gone)} {went} by {themselves} meanwhile", width=width)
    if not report.outcomes:
        yield plain("interrupted: nothing was done" if report.interrupted_by else _nothing_to_do(plan))
        return
    freed = f"freed {size(report.freed_gpu_bytes)} of GPU memory, {size(report.freed_shm_bytes)} of shared memory"
    yield from folded(f"interrupted; {freed}" if report.interrupted_by else freed, width=width, style=Style.HEADING)
    if any(isinstance(outcome.step, Ending) and outcome.result is Result.DONE for outcome in report.outcomes):
        yield from folded("what the ended processes held may be left over by now: clean again to see", width=width)


def _refused(plan: Plan, width: int) -> Iterator[Line]:
    yield from folded(plan.refused, width=width, first=(("refused: ", Style.BAD),), indent="  ")


def _nothing_to_do(plan: Plan) -> str:
    return "nothing to clean in what could be seen" if plan.unknowns else "nothing to clean"


def _total(steps: Sequence[Step]) -> str:
    endings = [step for step in steps if isinstance(step, Ending)]
    removals = [step for step in steps if isinstance(step, Removal)]
    held = [ending.gpu_bytes for ending in endings]
    gpu = "GPU memory not known" if None in held else f"{size(sum(used or 0 for used in held))} of GPU memory"
    parts = [f"{count(len(endings), 'process', 'processes')} ({gpu})"] if endings else []
    if removals:
        parts.append(
            f"{count(len(removals), 'file')} ({size(sum(removal.segment.allocated_bytes for removal in removals))})"
        )
    return ", ".join(parts)


def _steps(steps: Sequence[Step], heading: str, width: int) -> Iterator[Line]:
    if not steps:
        return
    memory = "GPU memory" if any(isinstance(step, Ending) for step in steps) else ""
    yield ((heading, Style.HEADING), (memory.rjust(width - columns(heading)), Style.FAINT))
    for because, endings in _grouped((step.because, step) for step in steps if isinstance(step, Ending)):
        yield from folded(because, width=width, first=plain("  "), indent="  ")
        for ending in endings:
            yield _ending(ending, width)
    for because, removals in _grouped((step.because, step) for step in steps if isinstance(step, Removal)):
        yield from folded(because, width=width, first=plain("  "), indent="  ")
        yield from _removals(removals, width)
    yield ()


def _ending(ending: Ending, width: int) -> Line:
    process = ending.process
    unit = ending.unit.name if ending.unit is not None else ""
    part = f"{process.engine} {process.role}".strip()
    held = "?" if ending.gpu_bytes is None else size(ending.gpu_bytes)
    wide = width - 4 - 26 - 1 - 18 - 1 - 1 - 9
    return plain(f"    {padded(process.name, 26)} {padded(part, 18)} {padded(unit, wide)} {held:>9}")


def _removals(removals: Sequence[Removal], width: int) -> Iterator[Line]:
    for _, group in _grouped(((removal.segment.kind, removal.unit, removal.after), removal) for removal in removals):
        first = group[0]
        of = f", of {first.unit.name}" if first.unit is not None else ""
        after = f", once {_pids(sorted(process.pid for process in first.after))} ended" if first.after else ""
        text = f"{_files([step.segment for step in group])}{of}{after}"
        yield from folded(text, width=width, first=plain(f"    {first.segment.kind}: "), indent=_INDENT)


def _pids(pids: Sequence[int]) -> str:
    shown = ", ".join(str(pid) for pid in pids[:_NAMES_SHOWN])
    rest = f" and {len(pids) - _NAMES_SHOWN} more" if len(pids) > _NAMES_SHOWN else ""
    return f"{shown}{rest} {'has' if len(pids) == 1 else 'have'}"


def _outcomes(outcomes: Sequence[Outcome], width: int) -> Iterator[Line]:
    yield (("DONE", Style.HEADING),)
    for outcome in outcomes:
        if isinstance(outcome.step, Ending):
            word, _, style = _RESULTS[outcome.result]
            took = f" ({span(outcome.seconds)})" if outcome.result is Result.DONE else ""
            said = f"{outcome.step.process.name}{took}{_why(outcome.result, outcome.detail, 'ended')}"
            first: Line = (("  ", Style.PLAIN), (padded(word, 14), style), (" ", Style.PLAIN))
            yield from folded(said, width=width, first=first, indent=" " * 17)
    of_files = (
        ((outcome.result, outcome.detail), outcome.step) for outcome in outcomes if isinstance(outcome.step, Removal)
    )
    for (result, detail), removals in _grouped(of_files):
        _, word, style = _RESULTS[result]
        first = (("  ", Style.PLAIN), (padded(word, 14), style), (" ", Style.PLAIN))
        said = _files([removal.segment for removal in removals])
        yield from folded(f"{said}{_why(result, detail, 'removed')}", width=width, first=first, indent=" " * 17)


def _why(result: Result, detail: str, verb: str) -> str:
    if result is Result.FAILED:
        return f": could not be {verb} ({detail})"
    return f": {detail}" if detail else ""


def _not_touched(plan: Plan, width: int) -> Iterator[Line]:
    if plan.skipped:
        yield (("LEFT ALONE", Style.HEADING),)
        for because, skipped in _grouped((entry.because, entry) for entry in plan.skipped):
            yield from folded(f"{_subjects(skipped)}: {because}", width=width, first=plain("  "), indent="    ")
        yield ()
    if plan.unknowns:
        yield (("CANNOT BE TOLD", Style.HEADING),)
        for unknown in plan.unknowns:
            yield from folded(unknown, width=width, first=plain("  "), indent="    ")
        yield ()


def _subjects(skipped: Sequence[Skipped]) -> str:
    subjects = [entry.subject for entry in skipped]
    processes = [subject for subject in subjects if isinstance(subject, Process)]
    files = [subject for subject in subjects if isinstance(subject, Segment)]
    shown = [process.name for process in processes[:_NAMES_SHOWN]]
    if len(processes) > _NAMES_SHOWN:
        shown.append(f"{len(processes) - _NAMES_SHOWN} more")
    return ", ".join([*shown, *([_files(files)] if files else [])])


def _files(segments: Sequence[Segment]) -> str:
    names = ", ".join(cut(segment.path, 48) for segment in segments[:_NAMES_SHOWN])
    if len(segments) == 1:
        return f"{names} ({size(segments[0].allocated_bytes)})"
    rest = ", …" if len(segments) > _NAMES_SHOWN else ""
    return (
        f"{count(len(segments), 'file')} ({size(sum(segment.allocated_bytes for segment in segments))}): {names}{rest}"
    )


def _grouped(pairs: Iterable[tuple[K, V]]) -> Iterator[tuple[K, list[V]]]:
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    yield from groups.items()
