"""The trouble of one unit in a line: it loops, has failed, was given up, or lacks what a start now needs. Pure."""

from collections.abc import Mapping

from llmhost.derive.activation import is_up, waits_to_restart
from llmhost.derive.attribution import HolderKind
from llmhost.derive.facts import UnitFacts
from llmhost.derive.host_view import HostView
from llmhost.derive.remembered import has_vanished
from llmhost.derive.restart_loop import RestartLoop
from llmhost.derive.start_limit_hit import StartLimitHit
from llmhost.derive.startable import Shortage, shortages
from llmhost.model.history.unit_history import Trigger
from llmhost.model.ids import SYSTEM_MANAGER, UnitId
from llmhost.model.reading import Ok
from llmhost.model.unit import Unit
from llmhost.model.wording import count, span

_NOT_LOADABLE = frozenset({"not-found", "bad-setting", "error"})
_ENDINGS: Mapping[int, str] = {1: "st", 2: "nd", 3: "rd"}


def unit_trouble(facts: UnitFacts, view: HostView) -> tuple[str, str]:
    """Give the kind of the finding and what it says; two "" for a unit that is well, or stopped on purpose."""
    unit = facts.unit
    if unit.load_state in _NOT_LOADABLE:
        return "unit_missing", _without_file(unit, view)
    hit = facts.start_limit_hit.value if isinstance(facts.start_limit_hit, Ok) else None
    waits = "waits to be restarted" if waits_to_restart(unit) else ""
    goes_on = bool(waits) or is_up(unit) or (hit is None and _is_started_by_others(unit, view))
    if facts.loop is not None and goes_on:
        now = f"; {waits}{_lacking(facts, view)}" if waits else "" if is_up(unit) else "; is down now"
        return "unit_loops", _loop(facts.loop, facts.restarts_short_of_memory) + now
    if unit.active_state == "failed":
        what = f"has failed ({unit.result})" if unit.result not in {"", "success"} else "has failed"
        return "unit_failed", what if hit is None else f"{what}; {given_up(unit.id, hit)}"
    if waits:
        return "unit_restarting", waits + _lacking(facts, view)
    if not is_up(unit) and facts.should_run == Ok(True):
        return "unit_down", "should run and does not" + _lacking(facts, view)
    return "", ""


def _is_started_by_others(unit: Unit, view: HostView) -> bool:
    """Say whether systemd made its last start for another unit (Upholds=, a timer): between two it just looks down."""
    record = view.history.units.get(unit.id)
    return record is not None and record.latest is not None and record.latest.trigger is Trigger.UNIT


def _without_file(unit: Unit, view: HostView) -> str:
    if unit.load_state != "not-found":
        return f"its file is bad ({unit.load_state})"
    if is_up(unit) or unit.active_state == "failed":
        return f"{'runs' if is_up(unit) else 'has failed'}, and its unit file has vanished: it cannot be started again"
    if has_vanished(view.history.units.get(unit.id), view.snapshot.at):
        return "its unit file has vanished, and nobody had stopped it"
    return "there is no such unit"


def given_up(unit: UnitId, hit: StartLimitHit) -> str:
    """Say that the start limit was hit, and what lifts it."""
    limit = "" if hit.interval_seconds is None else f" in {span(hit.interval_seconds)}"
    took = "" if hit.took_seconds is None else f" after {count(hit.burst, 'start')} in {span(hit.took_seconds)}"
    said = f"systemd has given up{took}: its start limit is {hit.burst}{limit}"
    return f"{said}; `{reset_command(unit)}` first" if hit.refuses else said


def reset_command(unit: UnitId) -> str:
    user = "" if unit.manager == SYSTEM_MANAGER else "--user "
    return f"systemctl {user}reset-failed {unit.name}"


def _loop(loop: RestartLoop, short: bool | None) -> str:
    said = f"loops: {_ordinal(loop.starts)} start in {span(loop.seconds)}"
    if not loop.ended:
        return said
    how = "failed" if loop.failed == loop.ended else "ended"
    how = f"all {how}" if loop.ended == loop.starts else f"{loop.ended} {how}"
    result = f" with {loop.last_result}" if loop.last_result else ""
    after = f" after {span(loop.last_seconds)}" if loop.last_seconds is not None else ""
    told = f"{said}, {how}, the last{after}{result}"
    if short is None:
        return told
    return f"{told}; {'each restart found too little' if short else 'a restart failed with enough'} memory free"


def _ordinal(number: int) -> str:
    ending = "th" if number % 100 in (11, 12, 13) else _ENDINGS.get(number % 10, "th")
    return f"{number}{ending}"


def _lacking(facts: UnitFacts, view: HostView) -> str:
    """Say what a start now would come to where what it needs is not there: a guard waits for it."""
    if facts.startable != Ok(False):
        return ""
    short = shortages(facts.gpus, facts.needed, view.snapshot.gpus, view.snapshot.host)
    usual = _usual_release(facts, short, view)
    if facts.guarded and short and all(shortage.passes for shortage in short):
        return f"; what it needs is not free now, and its guard waits for it{usual}"
    return f"; a start now would fail{usual}"


def _usual_release(facts: UnitFacts, short: tuple[Shortage, ...], view: HostView) -> str:
    """Say when memory usually comes back, where that of the unit's own ended runs is what is missing."""
    record = view.history.units.get(facts.unit.id)
    ends = [start.end.at for start in record.starts if start.end is not None] if record is not None else []
    if record is None or record.last_release_seconds is None or not ends:
        return ""
    due_in = max(ends) + record.last_release_seconds - view.snapshot.at
    if due_in <= 0 or not short or not all(_comes_back(shortage, facts.unit.id, view) for shortage in short):
        return ""
    return f"; memory came back {span(record.last_release_seconds)} after an end before: due in {span(due_in)}"


def _comes_back(shortage: Shortage, unit: UnitId, view: HostView) -> bool:
    """Say whether enough would be free without what ended runs of the unit hold, and what nobody holds."""
    attribution = view.facts.attribution.value if isinstance(view.facts.attribution, Ok) else {}
    of_gpu = attribution.get(shortage.uuid)
    if shortage.why or shortage.needed_bytes is None or shortage.free_bytes is None or not isinstance(of_gpu, Ok):
        return False
    unattributed = of_gpu.value.unattributed_bytes
    returning = unattributed.value if isinstance(unattributed, Ok) else 0
    for holder in of_gpu.value.holders:
        if holder.unit in (unit, None) and holder.kind in {HolderKind.LEFTOVER, HolderKind.GONE}:
            returning += holder.used_bytes or 0
    return shortage.free_bytes + returning >= shortage.needed_bytes
