"""Log lines, one for each start and one for each end of a run: the journal alone has the whole history."""

import json
from collections.abc import Iterable

from llmhost.derive.history.events import Ended
from llmhost.derive.in_the_way import Obstacle
from llmhost.model.history.unit_history import Start, Verdict
from llmhost.model.ids import SYSTEM_MANAGER, UnitId
from llmhost.model.wording import LEAST_SHOWN_BYTES, gib, shortened

_MOST_OBSTACLES = 8
_PLAIN = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_.:@/+-\\")


def start_line(unit: UnitId, start: Start, obstacles: tuple[Obstacle, ...]) -> str:
    """Give the line of a start whose main process has begun: its verdict, and the memory in its way."""
    fields = [*_attempt(unit, start), ("verdict", start.verdict or Verdict.UNKNOWN)]
    shown = tuple(obstacle for obstacle in obstacles if obstacle.used_bytes >= LEAST_SHOWN_BYTES)
    if shown:
        fields.append(("in_the_way", _obstacles(shown)))
    most = max(start.short, key=lambda short: short.short_bytes, default=None)
    if most is not None and (most.short_bytes or start.verdict is Verdict.RESIDENT):
        fields.append(("short", f"GPU {most.gpu}: {gib(most.short_bytes)} GiB" if most.short_bytes else "no"))
    if start.unknown_because:
        fields.append(("because", start.unknown_because))
    return f"start {_pairs([*fields, _run(start)])}"


def end_line(step: Ended) -> str:
    """Give the line of a run's end, or of the end of an attempt before its main process."""
    start, end = step.start, step.start.end
    fields = _attempt(step.unit.id, start)
    if start.verdict is Verdict.NOT_STARTED:
        fields.append(("verdict", Verdict.NOT_STARTED))
    if end is not None:
        fields.append(("result", end.result or "unseen"))
        if end.exec_main_status is not None:
            fields.append(("exec_main_status", str(end.exec_main_status)))
        if end.asked is not None:
            fields.append(("asked", "yes" if end.asked else "no"))
        if end.ended_with:
            fields.append(("ended_with", end.ended_with))
        fields.append(("after", f"{end.seconds:.1f}s"))
    return f"end {_pairs([*fields, _run(start)])}"


def _attempt(unit: UnitId, start: Start) -> list[tuple[str, str]]:
    name = unit.name if unit.manager == SYSTEM_MANAGER else f"{unit.name} of {unit.manager}"
    fields = [("unit", name)]
    if start.trigger is not None:
        fields += [("attempt", str(start.attempt)), ("trigger", start.trigger)]
    if start.started_by:
        fields.append(("started_by", start.started_by))
    return fields


def _run(start: Start) -> tuple[str, str]:
    """Name the run, last: it is long, and of use to machines and to `journalctl _SYSTEMD_INVOCATION_ID=`."""
    return "invocation_id", start.invocation_id


def _obstacles(obstacles: tuple[Obstacle, ...]) -> str:
    shown = [_obstacle(obstacle) for obstacle in obstacles[:_MOST_OBSTACLES]]
    more = len(obstacles) - len(shown)
    return "; ".join([*shown, *([f"and {more} more"] if more else [])])


def _obstacle(obstacle: Obstacle) -> str:
    what = f"GPU {obstacle.gpu}: {gib(obstacle.used_bytes)} GiB {obstacle.kind}"
    holder = obstacle.holder
    if holder is None:
        return what
    what += f" pid {holder.pid}"
    if holder.command:
        what += f" ({_command(holder.command)})"
    return f"{what} of {holder.unit.name}" if holder.unit is not None else what


def _command(command: str) -> str:
    """Keep a title that a process chose short and within its brackets: it must not pass for another holder."""
    return shortened(command).translate({ord("("): "[", ord(")"): "]", ord(";"): ","})


def _pairs(fields: Iterable[tuple[str, str]]) -> str:
    return " ".join(f"{name}={value if _is_plain(value) else json.dumps(value)}" for name, value in fields)


def _is_plain(value: str) -> bool:
    return bool(value) and _PLAIN.issuperset(value)
