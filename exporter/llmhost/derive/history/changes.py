"""Changes of a unit's record that more than one module makes."""

from dataclasses import replace

from llmhost.model.history.unit_history import STARTS_KEPT, InTheWay, Start, Trigger, UnitHistory, Verdict


def with_counted(record: UnitHistory, trigger: Trigger, verdict: Verdict, count: int = 1) -> UnitHistory:
    total = record.starts_total.get((trigger, verdict), 0) + count
    return replace(record, starts_total={**record.starts_total, (trigger, verdict): total})


def with_started(record: UnitHistory, start: Start) -> UnitHistory:
    """Put a start at the end; one that is forgotten for it and has no verdict yet gets no other than unknown."""
    starts = (*record.starts, start)
    for one in starts[:-STARTS_KEPT]:
        if one.verdict is None and one.trigger is not None:
            record = with_counted(record, one.trigger, Verdict.UNKNOWN)
    return replace(record, starts=starts[-STARTS_KEPT:])


def with_verdict(
    record: UnitHistory,
    invocation_id: str,
    verdict: Verdict,
    *,
    in_the_way: tuple[InTheWay, ...] = (),
    unknown_because: str = "",
) -> UnitHistory:
    """Take down what a start found; the first verdict stands."""
    start = record.start_of(invocation_id)
    if start is None or start.verdict is not None:
        return record
    start = replace(start, verdict=verdict, in_the_way=in_the_way, unknown_because=unknown_because)
    record = with_changed(record, start)
    if start.trigger is not None:
        record = with_counted(record, start.trigger, verdict)
    if verdict is Verdict.RESIDENT:
        record = replace(record, last_resident_start_at=start.at)
    return record


def with_changed(record: UnitHistory, start: Start) -> UnitHistory:
    """Put a start in the place of the one with its InvocationID."""
    starts = tuple(start if one.invocation_id == start.invocation_id else one for one in record.starts)
    return replace(record, starts=starts)


def with_time(record: UnitHistory, now_monotonic: float) -> UnitHistory:
    """Count the time in the present state up to now; never backwards."""
    passed = now_monotonic - record.state_since_monotonic
    if passed <= 0 or not record.state:
        return record
    seconds = {**record.state_seconds, record.state: record.state_seconds.get(record.state, 0.0) + passed}
    return replace(record, state_seconds=seconds, state_since_monotonic=now_monotonic)
