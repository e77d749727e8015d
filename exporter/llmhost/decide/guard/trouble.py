"""The guard's answer to inputs that are late, fail or are absent: how long it asks again, and what follows. Pure.

A failed look is no look: whatever fails is asked again, as long as its limit allows. What lasts by its cause, such as a
bus that is not there, has SURE_SECONDS on end to prove the opposite. What may pass, such as a systemd that reloads, has
the time that the wait has. docs/guard.md has the table of all inputs.
"""

from collections.abc import Mapping
from dataclasses import replace

from llmhost.config.schema import Config
from llmhost.decide.guard.state import (
    Action,
    Configure,
    FailedLook,
    File,
    FileFailure,
    GuardState,
    Inform,
    Inputs,
    Say,
    Topic,
)
from llmhost.model.history.history import History
from llmhost.model.reading import Cause, Failed, Ok, Reading

SURE_SECONDS = 3.0  # that what lasts by its cause has to last on end
FILE_SECONDS = 3.0  # that the files are waited for, from the beginning of the run
REMEDIES_SECONDS = 45.0  # that remedies alone hold back a start
BOOT_SECONDS = 300.0  # from the boot on, in which the driver may have yet to list a GPU
_LASTING = frozenset(
    {
        *(Cause.NO_BUS, Cause.NO_SYSTEMD, Cause.NO_PROCFS, Cause.NO_SHM),
        *(Cause.NO_PERMISSION, Cause.PID_NAMESPACE, Cause.CGROUP_NAMESPACE),
        *(Cause.DISABLED, Cause.MALFORMED),
    }
)
_TOLD: Mapping[File, Topic] = {File.CONFIG: Topic.NO_CONFIG, File.HISTORY: Topic.NO_HISTORY}


def lasts(reading: Reading[object]) -> bool:
    """Say whether a reading that is missing will be missing the next time too, by its cause."""
    return not isinstance(reading, Failed) or reading.cause in _LASTING


def since(before: float | None, now: float, *, holds: bool) -> float | None:
    """Give since when a condition holds on end; None where it does not."""
    if not holds:
        return None
    return now if before is None else before


# The files


def with_files(state: GuardState, inputs: Inputs) -> tuple[GuardState, tuple[Action, ...]]:
    """Take in the config and the history as they come, however late, and tell of what is not there in time."""
    readings: Mapping[File, Reading[Config] | Reading[History] | None] = {
        File.CONFIG: inputs.config,
        File.HISTORY: inputs.history,
    }
    actions: tuple[Action, ...] = ()
    if isinstance(inputs.config, Ok):
        state = replace(state, config=inputs.config.value)
        actions = (Configure(state.config, state.watched),)
    if isinstance(inputs.history, Ok):
        state = replace(state, history=inputs.history.value, recorded=inputs.history.value)
    for file, reading in readings.items():
        if isinstance(reading, Ok):
            if _TOLD[file] in state.warned:
                actions = (*actions, Say(topic=Topic.FILE_CAME, why=file.value, seconds=state.seconds))
            others = {other: failed for other, failed in state.file_failures.items() if other is not file}
            state = replace(state, unread=state.unread - {file}, file_failures=others)
            if state.remedies is not None:  # what they have found so far, they have found without it
                state = replace(state, remedies=replace(state.remedies, settled=False))
        elif isinstance(reading, Failed):
            before = state.file_failures.get(file)
            goes_on = before is not None and lasts(before.failed) == lasts(reading)
            failure = FileFailure(reading, before.since if before is not None and goes_on else state.now)
            state = replace(state, file_failures={**state.file_failures, file: failure})
    return state, actions


def awaits_files(state: GuardState) -> bool:
    """Say whether a decision has to wait for a file."""
    return any(state.seconds < FILE_SECONDS or file not in state.file_failures for file in state.unread)


def missed_files(state: GuardState) -> tuple[GuardState, tuple[Say, ...]]:
    """Tell, once, of each file without which the wait goes on; of the config last, as it may end the wait."""
    says: tuple[Say, ...] = ()
    if not awaits_files(state):
        for file in (File.HISTORY, File.CONFIG):
            if file in state.unread:
                topic = _TOLD[file]
                if topic is Topic.NO_CONFIG and state.refuses_on_fault:
                    topic = Topic.NO_CONFIG_REFUSED
                state, told = warn(state, Say(topic=topic, why=state.file_failures[file].failed.detail))
                says = (*says, *told)
    return state, says


# systemd


def systemd_is_absent(state: GuardState) -> bool:
    """Say whether systemd cannot be asked, and is not just busy.

    In a service's own start it is there. It leaves the bus while it is re-executed, until its generators are done.
    """
    units = state.units
    if not isinstance(units, Failed) or (units.cause is Cause.NO_SYSTEMD and state.target.is_own):
        return False
    return lasts(units)


def need_unknown(state: GuardState) -> str:
    """Say why systemd has not told what is needed, though it may yet; "" where there is none, or no answer yet."""
    if isinstance(state.units, Failed):
        return "" if systemd_is_absent(state) else state.units.words
    return "it does not tell of the unit" if isinstance(state.units, Ok) and state.target.is_own else ""


def systemd_fault(state: GuardState) -> str:
    """Say why systemd could not be asked what is needed."""
    if isinstance(state.units, Failed):
        return f"systemd cannot be asked: {state.units.words}"
    return "systemd does not tell of the unit that this runs in"


# The driver


def may_be_listed_yet(state: GuardState) -> bool:
    """Say whether a GPU that the driver does not list may come: the host has booted just now."""
    return not isinstance(state.host, Ok) or state.now + state.host.value.boottime_ahead_seconds < BOOT_SECONDS


# The remedies


def inform(state: GuardState, inputs: Inputs) -> tuple[GuardState, tuple[Action, ...]]:
    """Let the remedies begin, and go by what is read from then on."""
    known = isinstance(state.units, Ok) and isinstance(state.host, Ok) and not awaits_files(state)
    if state.remedies is None or not known:
        return state, ()
    if state.informed and all(new is None for new in (inputs.units, inputs.host, inputs.config, inputs.history)):
        return state, ()
    action = Inform(snapshot=state.snapshot, config=state.config, recorded=state.recorded)
    return replace(state, informed=True), (action,)


def failed_look(state: GuardState) -> FailedLook | None:
    """Say why the remedies cannot see what ended runs have left; None where they can, or are looking."""
    if state.remedies is None:
        return None
    if isinstance(state.units, Failed):
        return FailedLook(f"systemd does not tell of the unit ({state.units.words})", systemd_is_absent(state))
    if isinstance(state.host, Failed) and not state.informed:
        return FailedLook(f"the host cannot be read ({state.host.words})", lasts(state.host))
    failed, awaited = state.remedies.failed, _awaited_file(state)
    if awaited is None:
        return failed
    return FailedLook(failed.why if failed is not None else awaited.detail, lasts=False)  # with the file it may do


def remedies_pending(state: GuardState) -> bool:
    """Say whether a start has to wait for the remedies: they have not looked yet, or are ending processes."""
    progress = state.remedies
    if progress is None:
        return False
    return not progress.settled or progress.acting_since is not None or _awaited_file(state) is not None


def remedies_give_up(state: GuardState, until: float) -> Say | None:
    """Say why a start goes on without the remedies; None while it has to wait for them."""
    progress, failed = state.remedies, failed_look(state)
    if progress is None:
        return None
    began = progress.began if progress.acting_since is None else progress.acting_since
    if state.now - began >= REMEDIES_SECONDS or state.now >= until:
        seconds = min(state.now - began, REMEDIES_SECONDS)
        return Say(topic=Topic.REMEDIES_LATE, limit_seconds=seconds, why=failed.why if failed is not None else "")
    if failed is not None and state.unseen_since is not None and state.now - state.unseen_since >= SURE_SECONDS:
        return Say(topic=Topic.REMEDIES_UNPROVEN, why=failed.why)
    return None


def _awaited_file(state: GuardState) -> Failed | None:
    """Give the failure of a file that may come yet, and by which the remedies would find more."""
    failures = (state.file_failures.get(file) for file in File if file in state.unread)
    return next(
        (
            failure.failed
            for failure in failures
            if failure is not None and (not lasts(failure.failed) or state.now - failure.since < SURE_SECONDS)
        ),
        None,
    )


def warn(state: GuardState, say: Say) -> tuple[GuardState, tuple[Say, ...]]:
    """Say it once in a run."""
    if say.topic in state.warned:
        return state, ()
    return replace(state, warned=state.warned | {say.topic}), (say,)
