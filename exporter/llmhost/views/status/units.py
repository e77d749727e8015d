"""Units in `llmhost status`: state, starts with their verdicts, shortages for the next start. Pure."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import UTC, datetime

from llmhost.decide.unit_trouble import given_up
from llmhost.derive.activation import activation_began, is_up, waits_to_restart
from llmhost.derive.facts import UnitFacts
from llmhost.derive.host_view import HostView
from llmhost.derive.startable import Shortage, shortages
from llmhost.model.engine import EngineAnswer
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.history.unit_history import InTheWay, Start, UnitHistory, Verdict
from llmhost.model.ids import SYSTEM_MANAGER
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok
from llmhost.model.unit import Unit
from llmhost.model.wording import words
from llmhost.views.text import Line, Piece, Style, clean, columns, count, folded, gib, padded, plain, ranges, span

_INDENT = "    "
# Causes by which no memory of a GPU can be held.
_HELD_BY_NOBODY = frozenset({Cause.NO_DEVICE, Cause.NO_DRIVER, Cause.NO_GPU, Cause.NO_LIBRARY})
VERDICTS: Mapping[Verdict, Style] = {
    Verdict.CLEAN: Style.GOOD,
    Verdict.RESIDENT: Style.BAD,
    Verdict.UNKNOWN: Style.DOUBT,
    Verdict.NOT_STARTED: Style.DOUBT,
}


def unit_lines(view: HostView, width: int, *, all_starts: bool = False) -> Iterator[Line]:
    if not isinstance(view.facts.units, Ok):
        return
    yield (("UNITS", Style.HEADING),)
    if view.history_fault and view.facts.units.value:
        yield (("  without past starts and failures: the history cannot be read", Style.DOUBT),)
    if not view.facts.units.value:
        yield from folded(why_none(view), width=width, first=plain("  "), indent="  ")
    for unit in view.facts.units.value:
        yield from _state(unit, view, width)
        starts = _all_starts(unit.unit, view) if all_starts else ()
        for text, style in (*details_of(unit, view), *starts):
            yield from folded(text, width=width, first=plain(_INDENT), indent=_INDENT + "  ", style=style)


def why_none(view: HostView) -> str:
    """Say what was looked for where no unit is watched: one that is down, and of another name, is not seen."""
    config = view.units_config
    named = f"no service is named {', '.join(config.patterns)}" if config.patterns else "units.patterns is empty"
    found = ", and none runs a known engine or holds GPU memory" if config.discover else ""
    nvml = view.snapshot.nvml
    hidden = isinstance(nvml, Failed) and nvml.cause not in _HELD_BY_NOBODY
    if found and (hidden or isinstance(view.snapshot.processes, Failed)):
        found = ", and none says that it runs a known engine; others cannot be told by what they run or hold"
    return f"none is watched: {named}{found}; name yours under units.patterns in {view.config_file}"


def _state(facts: UnitFacts, view: HostView, width: int) -> Iterator[Line]:
    """Show the name and the state side by side, or, rather than to cut one of them, in two lines."""
    name, (state, style) = name_of(facts.unit), state_of(facts, view)
    wide = max(16, width - 2 - 1 - 39)
    if columns(clean(name)) <= wide and 2 + wide + 1 + columns(state) <= width:
        yield (("  ", Style.PLAIN), (padded(name, wide), Style.HEADING), (" ", Style.PLAIN), (state, style))
        return
    yield (("  ", Style.PLAIN), (name, Style.HEADING))
    yield from folded(state, width=width, first=plain(_INDENT), indent=_INDENT, style=style)


def name_of(unit: Unit) -> str:
    return unit.id.name if unit.id.manager == SYSTEM_MANAGER else f"{unit.id.name} ({unit.id.manager})"


def state_of(facts: UnitFacts, view: HostView) -> Piece:
    unit = facts.unit
    since = "" if unit.state_change_at is None else f" for {span(view.snapshot.at - unit.state_change_at)}"
    state = unit.active_state if unit.sub_state == unit.active_state else f"{unit.active_state} ({unit.sub_state})"
    if unit.load_state != "loaded":
        state = {"stub": "inactive (not loaded)"}.get(unit.load_state, unit.load_state)
    return f"{state}{since}", Style.BAD if facts.loop is not None and is_up(unit) else _style(unit)


def _style(unit: Unit) -> Style:
    if unit.active_state == "failed" or waits_to_restart(unit) or unit.load_state in {"not-found", "bad-setting"}:
        return Style.BAD
    return Style.GOOD if unit.active_state == "active" else Style.DOUBT if is_up(unit) else Style.PLAIN


def details_of(facts: UnitFacts, view: HostView) -> Iterator[tuple[str, Style]]:
    record = view.history.units.get(facts.unit.id)
    if facts.engine or facts.guarded:
        yield " · ".join(_about(facts)), Style.PLAIN
    if facts.unit.nrestarts and (waits_to_restart(facts.unit) or facts.loop is not None):
        forever = ", and it will never give up" if facts.start_limit_can_trip == Ok(False) else ""
        yield f"systemd has restarted it {count(facts.unit.nrestarts, 'time')}{forever}", Style.DOUBT
    if record is not None:
        yield from _history(facts.unit, record, view)
    yield from _guard(facts.unit, view)
    yield from _next_start(facts, view)
    times = list(_times(facts, record, view))
    if times:
        yield ", ".join(times), Style.PLAIN
    yield from _engines(facts.unit, view)


def _about(facts: UnitFacts) -> Iterator[str]:
    if facts.engine:
        yield facts.engine
    if isinstance(facts.processes, Ok):
        found = [count(number, words(role)) for role, number in sorted(facts.processes.value.items()) if number]
        if found:
            yield ", ".join(found)
    if facts.guarded:
        yield "guarded"


def _history(unit: Unit, record: UnitHistory, view: HostView) -> Iterator[tuple[str, Style]]:
    verdicts: Counter[Verdict] = Counter()
    for (_, verdict), number in record.starts_total.items():
        verdicts[verdict] += number
    total = sum(verdicts.values())
    if total:
        counts = ", ".join(f"{verdicts[kind]} {words(kind)}" for kind in Verdict if verdicts[kind])
        failures = sum(record.failures_total.values())
        failed = ", ".join(f"{number} {result}" for result, number in sorted(record.failures_total.items()) if number)
        yield (
            f"{count(total, 'start')}: {counts}" + (f"; {count(failures, 'failure')}: {failed}" if failed else ""),
            Style.PLAIN,
        )
    if record.unexpected_stops_total:
        yield f"{count(record.unexpected_stops_total, 'unexpected stop')} with success", Style.DOUBT
    if _is_unrecorded(unit, record):
        began = activation_began(unit)
        when = "" if began is None else f" {span(view.snapshot.at_monotonic - began)} ago"
        yield f"this start{when}: not judged yet", Style.DOUBT
    if record.latest is not None:
        name = "the start before" if _is_unrecorded(unit, record) else "last start"
        yield from start_lines(name, record.latest, view)
    judged = record.last_judged
    if judged is not None and judged is not record.latest and judged.in_the_way:
        yield from start_lines("last one judged", judged, view)


def _all_starts(unit: Unit, view: HostView) -> Iterator[tuple[str, Style]]:
    record = view.history.units.get(unit.id)
    starts = record.starts if record is not None else ()
    if starts:
        yield f"{count(len(starts), 'start')} in the record, the latest first:", Style.PLAIN
    for start in reversed(starts):
        at = datetime.fromtimestamp(start.at, tz=UTC).strftime("%Y-%m-%d %H:%M:%S UTC,")
        yield from start_lines(at, start, view)


def _is_unrecorded(unit: Unit, record: UnitHistory) -> bool:
    """Say whether the present run has begun since the exporter saved its history."""
    latest = record.latest.invocation_id if record.latest is not None else record.invocation_id
    return is_up(unit) and unit.invocation_id not in ("", latest)


def start_lines(name: str, start: Start, view: HostView) -> Iterator[tuple[str, Style]]:
    when = f"{name} {span(view.snapshot.at - start.at)} ago"
    who = "" if start.trigger is None else f", {start.trigger}" if not start.started_by else f", for {start.started_by}"
    if start.verdict is None:
        yield f"{when}{who}: not judged", Style.PLAIN
        return
    said = words(start.verdict)
    if start.unknown_because:
        said += f" ({start.unknown_because})"
    if start.in_the_way:
        said += f", {_in_the_way(start.in_the_way, view)}"
    said += _short(start, view)
    if start.end is not None and start.end.result:
        said += f"; ended after {span(start.end.seconds)} with {start.end.result}"
    yield f"{when}{who}: {said}", VERDICTS[start.verdict]


def _short(start: Start, view: HostView) -> str:
    """Say whether what the start needed was free, where that is known and something was in the way or missing."""
    indexes = {gpu.uuid: gpu.index for gpu in view.snapshot.gpus}
    alike: dict[str, list[str]] = {}
    for short in start.short:
        if short.short_bytes:
            alike.setdefault(gib(short.short_bytes), []).append(indexes.get(short.uuid, short.gpu))
    if alike:
        told = (
            f"{missing} GiB on {'each of ' * (len(gpus) > 1)}GPU{'s' * (len(gpus) > 1)} {ranges(gpus)}"
            for missing, gpus in alike.items()
        )
        return f"; short of {', '.join(told)}"
    return "; enough was free nevertheless" if start.short and start.verdict is Verdict.RESIDENT else ""


def _in_the_way(found: Iterable[InTheWay], view: HostView) -> str:
    """Group GPUs with the same memory in the way."""
    indexes = {gpu.uuid: gpu.index for gpu in view.snapshot.gpus}
    by_gpu: dict[str, list[str]] = {}
    for way in found:
        by_gpu.setdefault(indexes.get(way.uuid, way.gpu), []).append(f"{gib(way.used_bytes)} GiB {way.kind}")
    alike: dict[str, list[str]] = {}
    for gpu, held in by_gpu.items():
        alike.setdefault(" and ".join(sorted(held, reverse=True)), []).append(gpu)
    return "; ".join(
        f"GPU {gpus[0]} had {held}" if len(gpus) == 1 else f"GPUs {ranges(gpus)} had {held} each"
        for held, gpus in alike.items()
    )


def _guard(unit: Unit, view: HostView) -> Iterator[tuple[str, Style]]:
    runs = view.snapshot.guard_runs
    for run in runs.value if isinstance(runs, Ok) else ():
        if run.unit != unit.id:
            continue
        total = ", ".join(
            f"{run.runs_total[verdict]} {verdict}" for verdict in GuardVerdict if run.runs_total.get(verdict)
        )
        said = f"guard {span(view.snapshot.at - run.at)} ago: {run.verdict} after {span(run.wait_seconds)}"
        style = Style.PLAIN if run.verdict is GuardVerdict.FREE else Style.DOUBT
        yield f"{said}; its runs: {total}" if total else said, style


def _next_start(facts: UnitFacts, view: HostView) -> Iterator[tuple[str, Style]]:
    hit = facts.start_limit_hit.value if isinstance(facts.start_limit_hit, Ok) else None
    if hit is not None:
        yield given_up(facts.unit.id, hit), Style.BAD
    match facts.startable:
        case Ok(True):
            yield "startable: all it needs is free", Style.GOOD
        case Ok():
            refused = hit is not None and hit.refuses
            other = "its start limit refuses it" if refused else "the driver's library does not fit the loaded driver"
            missing = "; ".join(missing_of(facts, view)) or other
            yield f"not startable: {missing}", Style.BAD
        case Failed() as failed if facts.engine:
            why = failed.detail or failed.cause.words
            yield f"startable or not cannot be told: {why}", Style.DOUBT
        case Failed() | NotApplicable():
            pass


def missing_of(facts: UnitFacts, view: HostView) -> Iterator[str]:
    """Yield the memory or readiness that a start would lack, GPUs with the same lack together."""
    alike: dict[str, list[Shortage]] = {}
    for shortage in shortages(facts.gpus, facts.needed, view.snapshot.gpus, view.snapshot.host):
        needed, free = shortage.needed_bytes, shortage.free_bytes
        lacks = needed is not None and free is not None and free < needed
        memory = f"{gib(free or 0)} GiB free of {gib(needed or 0)} needed" if lacks else ""
        alike.setdefault(", ".join(part for part in (shortage.why, memory) if part), []).append(shortage)
    for why, found in alike.items():
        gpus = ranges(shortage.gpu for shortage in found)
        yield f"GPU {gpus}: {why}" if len(found) == 1 else f"GPUs {gpus}, each: {why}"


def _times(facts: UnitFacts, record: UnitHistory | None, view: HostView) -> Iterator[str]:
    readiness = view.history.readiness.get(facts.unit.id)
    if readiness is not None and readiness.past_seconds:
        yield f"was ready {span(readiness.past_seconds[-1])} after its start"
    if record is not None and record.last_release_seconds is not None:
        yield f"its memory came back {span(record.last_release_seconds)} after its end"


def _engines(unit: Unit, view: HostView) -> Iterator[tuple[str, Style]]:
    answers = view.snapshot.engines.value.answers if isinstance(view.snapshot.engines, Ok) else ()
    for answer in answers:
        if answer.unit == unit.id:
            yield _engine(answer, view)


def _engine(answer: EngineAnswer, view: HostView) -> tuple[str, Style]:
    if not isinstance(answer.samples, Ok):
        why = answer.samples.cause.words if isinstance(answer.samples, Failed) else answer.samples.why
        return f"{answer.endpoint}: {why}", Style.DOUBT
    samples = answer.samples.value
    said = []
    models = sorted({sample.model for sample in samples if sample.model})
    if models:
        said.append(", ".join(models))
    rate = view.rates.get((answer.unit, answer.endpoint))
    if rate is not None and rate.generation_tokens is not None:
        said.append(f"{rate.generation_tokens:.0f} tokens/s")
    for name, values in (
        ("running", [sample.requests_running for sample in samples]),
        ("waiting", [sample.requests_waiting for sample in samples]),
    ):
        known = [value for value in values if value is not None]
        if known:
            said.append(f"{sum(known):.0f} {name}")
    if any(sample.sleeping for sample in samples):
        said.append("asleep")
    return f"{answer.endpoint}: " + (", ".join(said) or "answers"), Style.PLAIN
