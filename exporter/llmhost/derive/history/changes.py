"""Changes of a unit's history that several modules make."""

from dataclasses import replace

from llmhost.model.history.unit_history import STARTS_KEPT, InTheWay, Short, Start, Trigger, UnitHistory, Verdict


def with_counted(history: UnitHistory, trigger: Trigger, verdict: Verdict, count: int = 1) -> UnitHistory:
    total = history.starts_total.get((trigger, verdict), 0) + count
    return replace(history, starts_total={**history.starts_total, (trigger, verdict): total})


def with_started(history: UnitHistory, start: Start) -> UnitHistory:
    """Append a start; one that is dropped for it and has no verdict yet is counted as unknown."""
    starts = (*history.starts, start)
    for dropped in starts[:-STARTS_KEPT]:
        if dropped.verdict is None and dropped.trigger is not None:
            history = with_counted(history, dropped.trigger, Verdict.UNKNOWN)
    return replace(history, starts=starts[-STARTS_KEPT:])


def with_verdict(
    history: UnitHistory,
    invocation_id: str,
    verdict: Verdict,
    *,
    in_the_way: tuple[InTheWay, ...] = (),
    short: tuple[Short, ...] = (),
    unknown_because: str = "",
) -> UnitHistory:
    """Give a start its verdict; the first one stands."""
    start = history.start_of(invocation_id)
    if start is None or start.verdict is not None:
        return history
    start = replace(start, verdict=verdict, in_the_way=in_the_way, short=short, unknown_because=unknown_because)
    history = with_changed(history, start)
    if start.trigger is not None:
        history = with_counted(history, start.trigger, verdict)
    if verdict is Verdict.RESIDENT:
        history = replace(history, last_resident_start_at=start.at)
    return history


def with_changed(history: UnitHistory, start: Start) -> UnitHistory:
    """Replace the start that has its InvocationID."""
    starts = tuple(start if kept.invocation_id == start.invocation_id else kept for kept in history.starts)
    return replace(history, starts=starts)


def with_time(history: UnitHistory, now_monotonic: float) -> UnitHistory:
    """Count the time in the present state up to now; never backwards."""
    passed = now_monotonic - history.state_since_monotonic
    if passed <= 0 or not history.state:
        return history
    seconds = {**history.state_seconds, history.state: history.state_seconds.get(history.state, 0.0) + passed}
    return replace(history, state_seconds=seconds, state_since_monotonic=now_monotonic)
