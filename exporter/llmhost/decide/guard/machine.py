"""The guard as a state machine: a step takes what has been read, and gives the next state and what to do. Pure.

`guard/loop.py` reads, steps and performs the actions, again and again. These hold for every run:

- A run ends by one Finish. It is FREE only by memory that was read in time, is enough, and has stood still for
  the settle time, on every GPU of the rule; and only once the remedies, if asked for, are through with a first pass.
- Every run ends: by a signal or a stop of its unit at once; otherwise by its limit, with two allowances: the first
  answers are waited for until FIRST_SECONDS of the run, and the names of the holders until NAMES_SECONDS. It ends
  before the limit where waiting is no use: a fault that only a reset or reboot ends, or no systemd to ask, for
  SURE_SECONDS on end.
- What fails is asked again (trouble.py). While systemd has yet to say what is needed, the need is unknown: such memory
  as an unknown need does not allow holds the start to the end, and without it only the limit lets the start go on.
- While the run is within its own timeout, systemd is asked for more time every EXTEND_SECONDS.
- Each source has one reading under way at most. Process lists are read only while the start is held, once a
  second at most: live engines wait for the lock that a list takes.
- A good answer of systemd's counts until the next good one: it does not answer while it reloads.
- Before a Finish comes a last line that explains it. Only an unknown unit has none: that is the caller's to report.
"""

from dataclasses import replace
from typing import TypeAlias

from llmhost.decide.guard.admitting import admit, awaited_by, watch_admitted
from llmhost.decide.guard.decision import decide, rule_of
from llmhost.decide.guard.holder_listing import name_holders, with_lists
from llmhost.decide.guard.memory_stability import advance
from llmhost.decide.guard.state import (
    Action,
    Ask,
    Extend,
    Finish,
    GuardState,
    Inputs,
    Query,
    Say,
    Topic,
    WaitStatus,
)
from llmhost.decide.guard.target import OWN_LIMIT, Target, is_being_stopped
from llmhost.decide.guard.trouble import (
    SURE_SECONDS,
    awaits_files,
    failed_look,
    inform,
    may_be_listed_yet,
    missed_files,
    need_unknown,
    remedies_give_up,
    remedies_pending,
    since,
    systemd_fault,
    systemd_is_absent,
    warn,
    with_files,
)
from llmhost.derive.command import with_whole_environment
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.reading import Ok, Reading
from llmhost.model.unit import Unit, UnitSettings, UnitsReport

FIRST_SECONDS = 4.0  # however short the limit, the first answers are waited for
NAMES_SECONDS = 1.0  # and, for that long, the names of the holders
STOPPING_SECONDS = 3.0  # after a signal, until systemd has confirmed that it is stopping the unit
REPEAT_SECONDS = 5.0  # between two lines that say the same
CHANGE_SECONDS = 1.0  # between two lines
EXTEND_SECONDS = 1.0
EXTENSION_SECONDS = 10.0
UNITS_SECONDS = 1.0  # between two readings of the units


Step: TypeAlias = tuple[GuardState, tuple[Action, ...]]


def step(state: GuardState, inputs: Inputs, now: float) -> Step:
    """Take in what has come by `now`, a time on the monotonic clock."""
    state, configured = with_files(_with_readings(state, inputs, now), inputs)
    if inputs.ended_by or state.terminated_at is not None or _is_being_stopped(state, inputs):
        return _leave(state, inputs)
    state, extended = _extend(state)
    state, informed = inform(state, inputs)
    state, decided = _decide(_with_trouble(state))
    actions = (*configured, *extended, *informed, *decided)
    if any(isinstance(action, Finish) for action in actions):
        return state, actions
    state, asks = _ask(state)
    return state, (*actions, *asks)


def _with_readings(state: GuardState, inputs: Inputs, now: float) -> GuardState:
    trends, units = state.trends, state.units
    if inputs.memory is not None:
        used = inputs.memory.value.used_bytes if isinstance(inputs.memory, Ok) else {}
        trends = advance(trends, used, now)
    if isinstance(inputs.units, Ok) or not isinstance(units, Ok):
        units = inputs.units or units
    answers = {
        Query.HOST: inputs.host,
        Query.UNITS: inputs.units,
        Query.LISTS: inputs.lists,
        Query.PROCESSES: inputs.processes,
    }
    answered = {query for query, answer in answers.items() if answer is not None}
    return replace(
        state,
        target=_meant(state.target, units),
        now=now,
        at=inputs.at,
        memory=inputs.memory or state.memory,
        host=inputs.host or state.host,
        units=units,
        units_at=state.units_at if inputs.units is None else now,
        command_began=state.command_began if inputs.command_began is None else inputs.command_began,
        shm_free_bytes=inputs.shm_free_bytes,
        remedies=inputs.remedies,
        admissions=inputs.admissions,
        pending=state.pending - answered,
        listing=with_lists(state.listing, inputs, now) if answered else state.listing,
        trends=trends,
    )


def _meant(target: Target, units: Reading[UnitsReport] | None) -> Target:
    """Give the target by its unit's own name, where it was given by an alias."""
    if target.unit is None or not isinstance(units, Ok):
        return target
    unit = next((unit.id for unit in units.value.units if target.unit.name in unit.aliases), target.unit)
    is_own = target.is_own or (unit == target.runs_in and not target.command)
    return target if unit == target.unit else replace(target, unit=unit, is_own=is_own)


def _leave(state: GuardState, inputs: Inputs) -> Step:
    """End by a signal; in the unit's own start, once it is known whether systemd is stopping the unit.

    Also without a signal, where systemd is stopping the unit: KillSignal= may be one that nobody notices.
    """
    end = Finish(verdict=state.verdict_so_far, terminated=True)
    says: tuple[Action, ...] = ()
    noticed = state.terminated_at
    if noticed is None:
        noticed = state.now
        state = replace(state, terminated_at=noticed)
        why = inputs.ended_by or "the stop of its unit"
        says = (Say(topic=Topic.TERMINATED, seconds=state.seconds, status=state.status, why=why),)
        if not state.target.is_own:
            return state, (*says, end)
    if _is_being_stopped(state, inputs):
        return state, (*says, replace(end, unit_is_stopping=True))
    if state.now - noticed >= STOPPING_SECONDS:
        return state, (end,)
    if Query.UNITS in state.pending:
        return state, says
    return replace(state, pending=state.pending | {Query.UNITS}), (*says, Ask(Query.UNITS))


def _is_being_stopped(state: GuardState, inputs: Inputs) -> bool:
    units = inputs.units.value.units if state.target.is_own and isinstance(inputs.units, Ok) else ()
    return any(unit.id == state.target.unit and is_being_stopped(unit) for unit in units)


def _extend(state: GuardState) -> Step:
    if state.now - state.extended_at < EXTEND_SECONDS or state.seconds >= state.limit.timeout_seconds:
        return state, ()
    return replace(state, extended_at=state.now), (Extend(EXTENSION_SECONDS),)


def _with_trouble(state: GuardState) -> GuardState:
    """Count for how long on end nothing can be known, by causes that last."""
    failed = failed_look(state)
    return replace(
        state,
        no_systemd_since=since(state.no_systemd_since, state.now, holds=systemd_is_absent(state)),
        unseen_since=since(state.unseen_since, state.now, holds=failed is not None and failed.lasts),
    )


def _decide(state: GuardState) -> Step:
    """Say whether the wait goes on, by what was read last."""
    fault = _fault(state)
    if fault:
        return state, _end_by_fault(state, fault)
    state, warnings = missed_files(state)
    if any(say.topic is Topic.NO_CONFIG_REFUSED for say in warnings):
        return state, (*warnings, Finish(verdict=GuardVerdict.FAULT))
    found = _found(state)
    asks_for_another = state.target.unit is not None and not state.target.is_own
    if found is None and asks_for_another and isinstance(state.units, Ok):
        return state, (*warnings, Finish(verdict=GuardVerdict.FAULT, no_such_unit=True))
    if found is not None and found.load_state == "stub":
        state, told = warn(state, Say(topic=Topic.NOT_LOADED, why=found.id.name))
        warnings = (*warnings, *told)
    state, actions = _judge(state, _unit(state, found))
    return state, (*warnings, *actions)


def _judge(state: GuardState, unit: Unit | None) -> Step:
    """Judge the memory by what the unit needs; without it, by what an unknown need allows."""
    command_began = state.limit.began if state.command_began is None else state.command_began
    until, limit = state.limit.until(unit, command_began, is_own=state.target.is_own)
    until_first = max(until, state.limit.began + FIRST_SECONDS) if limit == OWN_LIMIT else until
    why_unknown = need_unknown(state) if unit is None else ""
    judged = unit
    if why_unknown:
        judged, until = state.target.stand_in, until_first
    awaits = state.memory is None or state.host is None or (awaits_files(state) and state.now < until_first)
    if judged is None or awaits:
        return state, () if state.now < until_first else _give_up(state, limit, answered=False)
    rule = rule_of(judged, state.options, state.snapshot, state.config, state.history)
    status = WaitStatus(
        decision=decide(
            rule,
            state.options,
            state.snapshot,
            state.trends,
            shm_free_bytes=state.shm_free_bytes,
            awaited=awaited_by(state),
        ),
        rule=rule,
        options=state.options,
        holders=state.holders,
        trends=state.trends,
        need_unknown=why_unknown,
        stuck=state.remedies.stuck if state.remedies is not None else (),
        at=state.at,
    )
    state = replace(state, status=status)
    if status.decision.verdict is not GuardVerdict.FREE:
        return _hold(state, status, until, limit)
    if why_unknown:
        return _tell(state, status, until) if state.now < until else (state, _end_by_fault(state, systemd_fault(state)))
    return _let_on(state, status, until)


def _let_on(state: GuardState, status: WaitStatus, until: float) -> Step:
    """Finish, as all is free, unless a remedy is at work or cannot see yet whether there is work."""
    warnings: tuple[Action, ...] = ()
    if remedies_pending(state):
        failed, gives_up = failed_look(state), remedies_give_up(state, until)
        if gives_up is None:
            status = replace(status, unseen=failed.why if failed is not None else "")
            return _tell(replace(state, status=status), status, until)
        state, warnings = warn(state, gives_up)
    say = Say(topic=Topic.FREE, seconds=state.seconds, status=status)
    return state, (*warnings, *admit(state, status.rule), say, Finish(verdict=GuardVerdict.FREE))


def _hold(state: GuardState, status: WaitStatus, until: float, limit: str) -> Step:
    """Name the holders of the memory, and wait on, unless that is no use or has lasted too long."""
    state, admitted = watch_admitted(state, status)
    state, watches = name_holders(state, status)
    status = replace(status, holders=state.holders)
    decision, listed = status.decision, frozenset(gpu.uuid for gpu in state.snapshot.gpus)
    grows = decision.is_unlisted and listed != state.listed
    hopeless = decision.is_hopeless and not (decision.is_unlisted and may_be_listed_yet(state))
    hopeless_since = since(None if grows else state.hopeless_since, state.now, holds=hopeless)
    state = replace(state, status=status, listed=listed, hopeless_since=hopeless_since)
    if hopeless_since is not None and state.now - hopeless_since >= SURE_SECONDS:
        return state, _give_up(state, "no waiting mends that")
    if state.now >= until and not _will_know_more(state, status):
        return state, _give_up(state, limit)
    state, says = _tell(state, status, until)
    return state, (*admitted, *watches, *says)


def _fault(state: GuardState) -> str:
    """Give what keeps the guard from knowing what is needed, for good; "" for nothing."""
    if state.target.fault:
        return state.target.fault
    if not state.target.needs_systemd or state.no_systemd_since is None:
        return ""
    return systemd_fault(state) if state.now - state.no_systemd_since >= SURE_SECONDS else ""


def _end_by_fault(state: GuardState, why: str) -> tuple[Action, ...]:
    return Say(topic=Topic.NEED_UNKNOWN, why=why, seconds=state.seconds), Finish(verdict=GuardVerdict.FAULT)


def _found(state: GuardState) -> Unit | None:
    """Give the target's unit, if systemd has reported it and knows it."""
    units = state.units.value.units if isinstance(state.units, Ok) else ()
    return next((unit for unit in units if unit.id == state.target.unit and unit.load_state != "not-found"), None)


def _unit(state: GuardState, found: Unit | None) -> Unit | None:
    """Give what is to be started; None while that is not known."""
    target = state.target
    if target.unit is None or (found is None and not target.needs_systemd):
        return target.stand_in
    if found is None:
        return None
    if found.load_state == "stub":
        return replace(found, settings=UnitSettings())
    if found.settings is None or not target.is_own:
        return found if found.settings is not None else None
    # systemd gives ExecStart= the guard's environment, also from EnvironmentFile= and PassEnvironment=.
    settings = with_whole_environment(found.settings, target.environment)
    return replace(found, settings=settings)


def _will_know_more(state: GuardState, status: WaitStatus) -> bool:
    """Say whether the holders of the memory are known in a moment."""
    return bool(status.decision.lacks) and not status.holders and state.seconds < NAMES_SECONDS


def _tell(state: GuardState, status: WaitStatus, until: float) -> Step:
    """Say what is waited for: at once, when it changes, and now and then."""
    if status.is_about_to_end and state.seconds < state.options.settle_seconds + CHANGE_SECONDS:
        return state, ()  # every wait ends like that
    if state.said is None and _will_know_more(state, status):
        return state, ()
    subjects = status.subjects
    if state.now - state.said_at < (REPEAT_SECONDS if subjects == state.said else CHANGE_SECONDS):
        return state, ()
    limit = until - state.limit.began
    say = Say(topic=Topic.WAITS, seconds=state.seconds, limit_seconds=limit, status=status)
    return replace(state, said_at=state.now, said=subjects), (say,)


def _give_up(state: GuardState, why: str, *, answered: bool = True) -> tuple[Action, ...]:
    verdict = state.verdict_so_far
    say = Say(
        topic=Topic.GIVES_UP,
        seconds=state.seconds,
        verdict=verdict,
        status=state.status,
        answered=answered,
        why=why,
    )
    return say, Finish(verdict=verdict)


def _ask(state: GuardState) -> Step:
    """Ask for what is due and not under way."""
    report = state.memory
    host_moves = isinstance(report, Ok) and any(gpu.unified_memory for gpu in report.value.gpus)
    listing = state.listing
    due = {
        Query.HOST: not isinstance(state.host, Ok) or host_moves,
        Query.UNITS: not isinstance(state.units, Ok) or state.now - state.units_at >= UNITS_SECONDS,
        Query.LISTS: listing.begun and listing.lists is None,
        Query.PROCESSES: listing.begun and listing.lists is not None and listing.processes is None,
    }
    asks = tuple(query for query, is_due in due.items() if is_due and query not in state.pending)
    if not asks:
        return state, ()
    return replace(state, pending=state.pending | {*asks}), tuple(Ask(query) for query in asks)
