"""The guard as a state machine: a step takes what has been read, and gives the next state and what to do. Pure.

`guard/loop.py` reads, steps and performs the actions, again and again. These hold for every run:

- A run ends by one Finish. It is FREE only by memory that was read in time, is enough, and has stood still for
  the settle time, on every GPU of the rule; and only once the remedies, if asked for, are through with a first pass.
- Every run ends: by SIGTERM at once; otherwise by its limit, with two allowances: the first answers are waited for
  until FIRST_SECONDS of the run, and the names of the holders until NAMES_SECONDS. It ends before the limit where
  waiting is no use: a fault that only a reset or reboot ends, or no systemd to ask, for SURE_SECONDS on end.
- While the run is within its own timeout, systemd is asked for more time every EXTEND_SECONDS.
- Each source has one reading under way at most. Process lists are read only while the start is held, once a
  second at most: live engines wait for the lock that a list takes.
- A good answer of systemd's counts until the next good one: it does not answer while it reloads.
- Before a Finish comes a last line that explains it. Only an unknown unit has none: that is the caller's to report.
"""

from dataclasses import replace
from typing import TypeAlias

from llmhost.decide.guard.decision import decide, rule_of
from llmhost.decide.guard.memory_stability import STILL_BYTES, advance
from llmhost.decide.guard.state import (
    NEVER,
    Action,
    Ask,
    Extend,
    Finish,
    GuardState,
    HolderListing,
    Inform,
    Inputs,
    Query,
    Say,
    Topic,
    WaitStatus,
    Watch,
)
from llmhost.decide.guard.target import OWN_LIMIT
from llmhost.derive.command import with_whole_environment
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.reading import Failed, Ok
from llmhost.model.unit import Unit, UnitSettings, UnitsReport

FIRST_SECONDS = 4.0  # however short the limit, the first answers are waited for
NAMES_SECONDS = 1.0  # and, for that long, the names of the holders
SURE_SECONDS = 3.0  # that a hopeless fault, or a missing systemd, has to last
STOPPING_SECONDS = 0.3  # after SIGTERM, until systemd confirms that it is stopping the unit
REPEAT_SECONDS = 5.0  # between two lines that say the same
CHANGE_SECONDS = 1.0  # between two lines
EXTEND_SECONDS = 1.0
EXTENSION_SECONDS = 10.0
UNITS_SECONDS = 1.0  # between two readings of the units
LISTS_SOON_SECONDS = 1.0  # between two readings of the lists where there is news
LISTS_SECONDS = 5.0  # and where there is none
REMEDIES_SECONDS = 45.0  # that remedies alone hold back a start
UNPROVEN_SECONDS = 3.0  # until systemd must have reported the unit, for remedies
_START_GOES_ON = frozenset(
    {"condition", "start-pre"}
)  # sub-states in which a start goes on when the guard exits with 0


Step: TypeAlias = tuple[GuardState, tuple[Action, ...]]


def step(state: GuardState, inputs: Inputs, now: float) -> Step:
    """Take in what has come by `now`, a time on the monotonic clock."""
    state = _with_readings(state, inputs, now)
    if inputs.terminated or state.terminated_at is not None:
        return _leave(state, inputs)
    state, extended = _extend(state)
    state, informed = _inform(state, inputs)
    state, decided = _decide(state)
    actions = (*extended, *informed, *decided)
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
        now=now,
        at=inputs.at,
        memory=inputs.memory or state.memory,
        host=inputs.host or state.host,
        units=units,
        units_at=state.units_at if inputs.units is None else now,
        command_began=state.command_began if inputs.command_began is None else inputs.command_began,
        shm_free_bytes=inputs.shm_free_bytes,
        remedies=inputs.remedies,
        pending=state.pending - answered,
        listing=_listing(state.listing, inputs, now) if answered else state.listing,
        trends=trends,
    )


def _listing(listing: HolderListing, inputs: Inputs, now: float) -> HolderListing:
    if isinstance(inputs.lists, Ok):
        listing = replace(listing, all_read=True, used_bytes=inputs.lists.value.used_bytes)
    return replace(
        listing,
        lists=inputs.lists or listing.lists,
        processes=inputs.processes or listing.processes,
        read_at=now if inputs.processes is not None else listing.read_at,
        awaits_units=listing.awaits_units and inputs.units is None,
    )


def _leave(state: GuardState, inputs: Inputs) -> Step:
    """End by SIGTERM; in the unit's own start, once it is known whether systemd is stopping the unit."""
    end = Finish(verdict=state.verdict_so_far, terminated=True)
    says: tuple[Action, ...] = ()
    if state.terminated_at is None:
        state = replace(state, terminated_at=state.now)
        says = (Say(topic=Topic.TERMINATED, seconds=state.seconds, status=state.status),)
        if not state.target.is_own:
            return state, (*says, end)
    elif isinstance(inputs.units, Ok) and _is_stopping(state, inputs.units.value):
        return state, (replace(end, unit_is_stopping=True),)
    elif state.now - state.terminated_at >= STOPPING_SECONDS:
        return state, (end,)
    if Query.UNITS in state.pending:
        return state, says
    return replace(state, pending=state.pending | {Query.UNITS}), (*says, Ask(Query.UNITS))


def _is_stopping(state: GuardState, report: UnitsReport) -> bool:
    return any(unit.id == state.target.unit and unit.sub_state not in _START_GOES_ON for unit in report.units)


def _extend(state: GuardState) -> Step:
    if state.now - state.extended_at < EXTEND_SECONDS or state.seconds >= state.limit.timeout_seconds:
        return state, ()
    return replace(state, extended_at=state.now), (Extend(EXTENSION_SECONDS),)


def _inform(state: GuardState, inputs: Inputs) -> Step:
    if state.remedies is None:
        return state, ()
    if not isinstance(state.units, Ok) or not isinstance(state.host, Ok):
        late = not state.informed and state.now - state.remedies.began >= UNPROVEN_SECONDS
        return _warn(state, Say(topic=Topic.REMEDIES_UNPROVEN)) if late else (state, ())
    if state.informed and inputs.units is None and inputs.host is None:
        return state, ()
    return replace(state, informed=True), (Inform(state.snapshot),)


def _decide(state: GuardState) -> Step:
    """Say whether the wait goes on, by what was read last."""
    state, fault = _fault(state)
    if fault:
        say = Say(topic=Topic.NEED_UNKNOWN, why=fault, seconds=state.seconds)
        return state, (say, Finish(verdict=GuardVerdict.FAULT))
    found = _found(state)
    if found is None and state.target.unit is not None and isinstance(state.units, Ok):
        return state, (Finish(verdict=GuardVerdict.FAULT, no_such_unit=True),)
    warnings: tuple[Action, ...] = ()
    if found is not None and found.load_state == "stub":
        state, warnings = _warn(state, Say(topic=Topic.NOT_LOADED, why=found.id.name))
    unit = _unit(state, found)
    command_began = state.limit.began if state.command_began is None else state.command_began
    until, limit = state.limit.until(unit, command_began, is_own=state.target.is_own)
    if unit is None or state.memory is None or state.host is None:
        if state.now < until or (limit == OWN_LIMIT and state.seconds < FIRST_SECONDS):
            return state, warnings
        return state, (*warnings, *_give_up(state, limit, answered=False))
    rule = rule_of(unit, state.options, state.snapshot, state.config, state.history)
    status = WaitStatus(
        decision=decide(rule, state.options, state.snapshot, state.trends, shm_free_bytes=state.shm_free_bytes),
        rule=rule,
        options=state.options,
        holders=state.holders,
        trends=state.trends,
        stuck=state.remedies.stuck if state.remedies is not None else (),
        at=state.at,
    )
    state = replace(state, status=status)
    if status.decision.verdict is GuardVerdict.FREE:
        state, actions = _let_on(state, status, until)
    else:
        state, actions = _hold(state, status, until, limit)
    return state, (*warnings, *actions)


def _let_on(state: GuardState, status: WaitStatus, until: float) -> Step:
    """Finish, as all is free, unless a remedy is at work."""
    state, warnings, pending = _remedies_pending(state)
    if pending and state.now < until:
        return _tell(state, status, until)
    say = Say(topic=Topic.FREE, seconds=state.seconds, status=status)
    return state, (*warnings, say, Finish(verdict=GuardVerdict.FREE))


def _hold(state: GuardState, status: WaitStatus, until: float, limit: str) -> Step:
    """Name the holders of the memory, and wait on, unless that is no use or has lasted too long."""
    state, watches = _name_holders(state, status)
    status = replace(status, holders=state.holders)
    since = None
    if status.decision.is_hopeless:
        since = state.now if state.hopeless_since is None else state.hopeless_since
    state = replace(state, status=status, hopeless_since=since)
    if since is not None and state.now - since >= SURE_SECONDS:
        return state, _give_up(state, "no waiting mends that")
    if state.now >= until and not _will_know_more(state, status):
        return state, _give_up(state, limit)
    state, says = _tell(state, status, until)
    return state, (*watches, *says)


def _fault(state: GuardState) -> tuple[GuardState, str]:
    """Give what keeps the guard from knowing what is needed; "" for nothing."""
    if state.target.fault:
        return state, state.target.fault
    units = state.units
    if not state.target.needs_systemd or not isinstance(units, Failed):
        return state, ""  # once systemd has answered, it has not failed any more
    since = state.now if state.no_systemd_since is None else state.no_systemd_since
    state = replace(state, no_systemd_since=since)
    if state.now - since < SURE_SECONDS:
        return state, ""
    detail = f" ({units.detail})" if units.detail else ""
    return state, f"systemd cannot be asked: {units.cause.words}{detail}"


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


def _remedies_pending(state: GuardState) -> tuple[GuardState, tuple[Action, ...], bool]:
    """Say whether a start has to wait for the remedies: no pass has been made, or processes are being ended."""
    progress = state.remedies
    if progress is None or (progress.settled and progress.acting_since is None):
        return state, (), False
    waited = state.now - (progress.began if progress.acting_since is None else progress.acting_since)
    if waited >= REMEDIES_SECONDS:
        return *_warn(state, Say(topic=Topic.REMEDIES_LATE, limit_seconds=REMEDIES_SECONDS)), False
    return state, (), state.informed or waited < UNPROVEN_SECONDS


def _name_holders(state: GuardState, status: WaitStatus) -> Step:
    """Begin to read lists and processes when they are due; when both are there, name the holders."""
    listing = state.listing
    if not listing.begun:
        if isinstance(state.memory, Ok) and state.now - listing.read_at >= _lists_due_seconds(state, status):
            state = replace(state, listing=replace(listing, begun=True, lists=None, processes=None))
        return state, ()
    if listing.lists is None or listing.processes is None or listing.awaits_units:
        return state, ()
    from llmhost.decide.guard.holders import attribute, units_of_interest  # takes time, and a verdict does not need it

    new = units_of_interest(listing.lists, listing.processes) - {*state.watched}
    watches: tuple[Action, ...] = ()
    if new:
        state = replace(state, watched=(*state.watched, *sorted(new)))
        watches = (Watch(state.watched),)
    if new and isinstance(state.units, Ok):
        return replace(state, listing=replace(listing, awaits_units=True), units_at=NEVER), watches
    snapshot = replace(state.snapshot, nvml=listing.lists, processes=listing.processes)
    history, holders = attribute(snapshot, state.config, state.history)
    return replace(state, history=history, holders=holders, listing=replace(listing, begun=False)), watches


def _lists_due_seconds(state: GuardState, status: WaitStatus) -> float:
    """News are: nothing was listed yet, memory has moved, a fabric may have become ready."""
    used = state.memory.value.used_bytes if isinstance(state.memory, Ok) else {}
    listed = state.listing.used_bytes
    news = (
        not state.listing.all_read
        or any(lack.why for lack in status.decision.lacks)
        or any(abs(used.get(gpu.uuid, 0) - listed.get(gpu.uuid, 0)) > STILL_BYTES for gpu in status.decision.gpus)
    )
    return LISTS_SOON_SECONDS if news else LISTS_SECONDS


def _will_know_more(state: GuardState, status: WaitStatus) -> bool:
    """Say whether the holders of the memory are known in a moment."""
    return bool(status.decision.lacks) and not status.holders and state.seconds < NAMES_SECONDS


def _tell(state: GuardState, status: WaitStatus, until: float) -> Step:
    """Say what is waited for: at once, when it changes, and now and then."""
    if status.enough_is_free and state.seconds < state.options.settle_seconds + CHANGE_SECONDS:
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


def _warn(state: GuardState, say: Say) -> Step:
    """Say it once in a run."""
    if say.topic in state.warned:
        return state, ()
    return replace(state, warned=state.warned | {say.topic}), (say,)


def _ask(state: GuardState) -> Step:
    """Ask for what is due and not under way."""
    report = state.memory
    host_moves = isinstance(report, Ok) and any(gpu.unified_memory for gpu in report.value.gpus)
    listing = state.listing
    due = {
        Query.HOST: state.host is None or host_moves,
        Query.UNITS: not isinstance(state.units, Ok) or state.now - state.units_at >= UNITS_SECONDS,
        Query.LISTS: listing.begun and listing.lists is None,
        Query.PROCESSES: listing.begun and listing.lists is not None and listing.processes is None,
    }
    asks = tuple(query for query, is_due in due.items() if is_due and query not in state.pending)
    if not asks:
        return state, ()
    return replace(state, pending=state.pending | {*asks}), tuple(Ask(query) for query in asks)
