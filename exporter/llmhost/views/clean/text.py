"""What `llmhost clean` would do, has done and leaves alone, for people. Pure."""

from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from llmhost.decide.cleanup.done import Done
from llmhost.decide.cleanup.steps import Ending, Left, Outcome, Plan, Removal, Result, Step
from llmhost.model.process import Process
from llmhost.model.segment import Segment
from llmhost.views.text import WIDTH, Line, Style, columns, count, cut, folded, padded, plain, rendered, size, span

K = TypeVar("K", bound=Hashable)
V = TypeVar("V")

_NAMES = 3  # that are listed of many; --json has them all
_INDENT = "      "
_WORDS: Mapping[Result, tuple[str, str, Style]] = {  # of an ending, of a removal
    Result.DONE: ("ended", "removed", Style.GOOD),
    Result.GONE: ("gone by itself", "gone by itself", Style.GOOD),
    Result.SPARED: ("spared", "spared", Style.PLAIN),
    Result.DENIED: ("not allowed", "not allowed", Style.BAD),
    Result.STUCK: ("does not die", "stuck", Style.BAD),
}


def plan_text(plan: Plan, seconds_to_wait: float, *, width: int = WIDTH, colour: bool = False) -> str:
    """Show a dry run. `seconds_to_wait` is how far apart --apply looks."""
    return rendered(_planned(plan, seconds_to_wait, width), width=width, colour=colour)


def done_text(done: Done, *, width: int = WIDTH, colour: bool = False) -> str:
    return rendered(_done(done, width), width=width, colour=colour)


def _planned(plan: Plan, seconds_to_wait: float, width: int) -> Iterator[Line]:
    if plan.refused:
        yield from _refused(plan, width)
        return
    yield from _steps(plan.endings, "TO END", width)
    yield from _steps(plan.removals, "TO REMOVE", width)
    yield from _steps(plan.waiting, "NOT WATCHED FOR LONG ENOUGH YET", width)
    yield from _rest(plan, width)
    if plan.steps:
        yield from folded(f"would clean {_sum(plan.steps)}", width=width, style=Style.HEADING)
    if plan.waiting:
        also = "and perhaps" if plan.steps else "would perhaps clean"
        yield from folded(f"{also} {_sum(plan.waiting)}", width=width, style=Style.HEADING)
    if plan.steps or plan.waiting:
        after = f"--apply looks, waits {span(seconds_to_wait)}, looks again, and does what both looks say"
        yield from folded(f"nothing was done; {after}", width=width)
    else:
        yield plain(_nothing(plan))


def _done(done: Done, width: int) -> Iterator[Line]:
    plan = done.plan
    if plan.refused:
        yield from _refused(plan, width)
        return
    if done.outcomes:
        yield from _outcomes(done.outcomes, width)
        yield ()
    yield from _steps(done.not_begun, "NOT BEGUN, AS IT WAS INTERRUPTED" if done.interrupted_by else "NOT BEGUN", width)
    yield from _steps(plan.waiting, "NOT WATCHED FOR LONG ENOUGH YET", width)
    yield from _rest(plan, width)
    if not done.outcomes:
        yield plain("interrupted: nothing was done" if done.interrupted_by else _nothing(plan))
        return
    freed = f"freed {size(done.freed_gpu_bytes)} of GPU memory, {size(done.freed_shm_bytes)} of shared memory"
    yield from folded(f"interrupted; {freed}" if done.interrupted_by else freed, width=width, style=Style.HEADING)
    if any(isinstance(outcome.step, Ending) and outcome.result is Result.DONE for outcome in done.outcomes):
        yield from folded("what the ended processes held may be left over by now: clean again to see", width=width)


def _refused(plan: Plan, width: int) -> Iterator[Line]:
    yield from folded(plan.refused, width=width, first=(("refused: ", Style.BAD),), indent="  ")


def _nothing(plan: Plan) -> str:
    return "nothing to clean in what could be seen" if plan.unknowns else "nothing to clean"


def _sum(steps: Sequence[Step]) -> str:
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
    return plain(f"    {padded(_who(process), 26)} {padded(part, 18)} {padded(unit, wide)} {held:>9}")


def _removals(removals: Sequence[Removal], width: int) -> Iterator[Line]:
    for _, group in _grouped(((removal.segment.kind, removal.unit, removal.after), removal) for removal in removals):
        first = group[0]
        of = f", of {first.unit.name}" if first.unit is not None else ""
        after = f", once {_pids(sorted(process.pid for process in first.after))} ended" if first.after else ""
        said = f"{_files([step.segment for step in group])}{of}{after}"
        yield from folded(said, width=width, first=plain(f"    {first.segment.kind}: "), indent=_INDENT)


def _pids(pids: Sequence[int]) -> str:
    shown = ", ".join(str(pid) for pid in pids[:_NAMES])
    rest = f" and {len(pids) - _NAMES} more" if len(pids) > _NAMES else ""
    return f"{shown}{rest} {'has' if len(pids) == 1 else 'have'}"


def _outcomes(outcomes: Sequence[Outcome], width: int) -> Iterator[Line]:
    yield (("DONE", Style.HEADING),)
    for outcome in outcomes:
        if isinstance(outcome.step, Ending):
            word, _, style = _WORDS[outcome.result]
            took = f" ({span(outcome.seconds)})" if outcome.result is Result.DONE else ""
            said = f"{_who(outcome.step.process)}{took}{f': {outcome.detail}' if outcome.detail else ''}"
            first: Line = (("  ", Style.PLAIN), (padded(word, 14), style), (" ", Style.PLAIN))
            yield from folded(said, width=width, first=first, indent=" " * 17)
    of_files = (
        ((outcome.result, outcome.detail), outcome.step) for outcome in outcomes if isinstance(outcome.step, Removal)
    )
    for (result, detail), removals in _grouped(of_files):
        _, word, style = _WORDS[result]
        first = (("  ", Style.PLAIN), (padded(word, 14), style), (" ", Style.PLAIN))
        said = _files([removal.segment for removal in removals])
        yield from folded(f"{said}{f': {detail}' if detail else ''}", width=width, first=first, indent=" " * 17)


def _rest(plan: Plan, width: int) -> Iterator[Line]:
    if plan.left:
        yield (("LEFT ALONE", Style.HEADING),)
        for because, left in _grouped((one.because, one) for one in plan.left):
            yield from folded(f"{_subjects(left)}: {because}", width=width, first=plain("  "), indent="    ")
        yield ()
    if plan.unknowns:
        yield (("CANNOT BE TOLD", Style.HEADING),)
        for unknown in plan.unknowns:
            yield from folded(unknown, width=width, first=plain("  "), indent="    ")
        yield ()


def _subjects(left: Sequence[Left]) -> str:
    processes = [one.subject for one in left if isinstance(one.subject, Process)]
    files = [one.subject for one in left if isinstance(one.subject, Segment)]
    shown = [_who(process) for process in processes[:_NAMES]]
    if len(processes) > _NAMES:
        shown.append(f"{len(processes) - _NAMES} more")
    return ", ".join([*shown, *([_files(files)] if files else [])])


def _files(segments: Sequence[Segment]) -> str:
    names = ", ".join(cut(segment.path, 48) for segment in segments[:_NAMES])
    if len(segments) == 1:
        return f"{names} ({size(segments[0].allocated_bytes)})"
    rest = ", …" if len(segments) > _NAMES else ""
    return (
        f"{count(len(segments), 'file')} ({size(sum(segment.allocated_bytes for segment in segments))}): {names}{rest}"
    )


def _who(process: Process) -> str:
    title = process.argv[0] if process.engine and process.argv and "::" in process.argv[0] else process.comm
    return f"{process.id.pid} {title}"


def _grouped(pairs: Iterable[tuple[K, V]]) -> Iterator[tuple[K, list[V]]]:
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    yield from groups.items()
