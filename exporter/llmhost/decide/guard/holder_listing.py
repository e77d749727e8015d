"""The reading of process lists and processes, by which the holders of the memory are named. Pure.

They are read only while the start is held, once a second at most: live engines wait for the lock that a list takes.
"""

from dataclasses import replace

from llmhost.decide.guard.memory_stability import STILL_BYTES
from llmhost.decide.guard.state import NEVER, Action, GuardState, HolderListing, Inputs, WaitStatus, Watch
from llmhost.model.reading import Ok

SOON_SECONDS = 1.0  # between two readings of the lists where there is news
SECONDS = 5.0  # and where there is none


def with_lists(listing: HolderListing, inputs: Inputs, now: float) -> HolderListing:
    """Take in what has come."""
    if isinstance(inputs.lists, Ok):
        listing = replace(listing, all_read=True, used_bytes=inputs.lists.value.used_bytes)
    return replace(
        listing,
        lists=inputs.lists or listing.lists,
        processes=inputs.processes or listing.processes,
        read_at=now if inputs.processes is not None else listing.read_at,
        awaits_units=listing.awaits_units and inputs.units is None,
    )


def name_holders(state: GuardState, status: WaitStatus) -> tuple[GuardState, tuple[Action, ...]]:
    """Begin to read lists and processes when they are due; when both are there, name the holders."""
    listing = state.listing
    if not listing.begun:
        if isinstance(state.memory, Ok) and state.now - listing.read_at >= _due_seconds(state, status):
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


def _due_seconds(state: GuardState, status: WaitStatus) -> float:
    """News are: nothing was listed yet, memory has moved, a fabric may have become ready."""
    used = state.memory.value.used_bytes if isinstance(state.memory, Ok) else {}
    listed = state.listing.used_bytes
    news = (
        not state.listing.all_read
        or any(lack.why for lack in status.decision.lacks)
        or any(abs(used.get(gpu.uuid, 0) - listed.get(gpu.uuid, 0)) > STILL_BYTES for gpu in status.decision.gpus)
    )
    return SOON_SECONDS if news else SECONDS
