"""The steps of a guard's run that have to do with other guards: what they have let start, and telling them. Pure."""

from collections.abc import Mapping
from dataclasses import replace

from llmhost.decide.guard.admissions import Awaited, awaited
from llmhost.decide.guard.decision import Rule
from llmhost.decide.guard.state import NEVER, Action, Admit, GuardState, WaitStatus, Watch
from llmhost.model.ids import GpuUuid
from llmhost.model.reading import Ok


def admit(state: GuardState, rule: Rule) -> tuple[Action, ...]:
    """Let other guards know of the start, if it is one that this guard lets go on."""
    if not isinstance(rule.gpus, Ok) or not (state.target.is_own or state.target.command):
        return ()
    needs = rule.need.value if isinstance(rule.need, Ok) else {}
    needed = {uuid: needs.get(uuid) for uuid in rule.gpus.value}
    return (Admit(needed=needed, any_gpus=bool(rule.doubt), seen=state.admissions),) if needed else ()


def awaited_by(state: GuardState) -> Mapping[GpuUuid, tuple[Awaited, ...]]:
    """Give what starts that other guards have let go on have yet to take."""
    if not state.admissions or not isinstance(state.host, Ok):
        return {}
    boottime_seconds = state.now + state.host.value.boottime_ahead_seconds
    target = state.target
    # The unit itself, which may have been named by an alias; of a command, the unit whose guard has let it start.
    own = target.runs_in if target.command else target.unit
    others = [each for each in state.admissions if each.unit != own or each.process is not None]
    return awaited(
        others,
        state.holders,
        state.units,
        boottime_seconds,
        max_used_bytes=state.options.max_used_bytes,
    )


def watch_admitted(state: GuardState, status: WaitStatus) -> tuple[GuardState, tuple[Action, ...]]:
    """Have systemd tell of the units whose start is waited for: it may be over."""
    units = {each.unit for lack in status.decision.lacks for each in lack.awaited}
    new = {unit.name for unit in units if unit is not None} - {*state.watched}
    if not new:
        return state, ()
    state = replace(state, watched=(*state.watched, *sorted(new)), units_at=NEVER)
    return state, (Watch(state.watched),)
