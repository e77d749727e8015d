"""Restarts as systemd 257 and 262 showed them, also with RestartMode=direct: the starts, and the processes of each."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise

import pytest
from tests.fakes.recorded_restarts import Restarts, recorded
from tests.fakes.values import HOST, in_service, process

from llmhost.derive.activation import is_of_present_activation, is_up
from llmhost.derive.history.events import with_unit_event
from llmhost.model.history.unit_history import Trigger, UnitHistory
from llmhost.model.unit import Unit
from llmhost.model.unit_event import UnitEvent

RECORDED = recorded()
by_unit = pytest.mark.parametrize("restarts", RECORDED.values(), ids=RECORDED.keys())


def started(history: UnitHistory) -> Counter[Trigger | None]:
    """Give the starts, judged or not."""
    found: Counter[Trigger | None] = Counter()
    for (trigger, _), count in history.starts_total.items():
        found[trigger] += count
    found.update(start.trigger for start in history.starts if start.verdict is None)
    return found


def followed(events: tuple[UnitEvent, ...], history: UnitHistory | None = None) -> UnitHistory:
    for event in events:
        history, _ = with_unit_event(history, event)
    assert history is not None
    return history


def test_there_are_recordings_of_both_modes_and_of_two_releases() -> None:
    modes = {unit.unit.settings.restart_mode for one in RECORDED.values() for unit in one.reads if unit.unit.settings}
    assert modes == {"normal", "direct"}
    assert {name.rpartition(" ")[2] for name in RECORDED} == {"257", "262"}


@by_unit
def test_each_process_is_of_the_attempt_that_started_it_and_of_no_other(restarts: Restarts) -> None:
    seen = 0
    for event in (*restarts.events, *restarts.reads):
        if not is_up(event.unit):
            continue
        for invocation, ticks in restarts.ran.items():
            if ticks / HOST.ticks_per_second <= event.at_monotonic - 0.02:
                left = process(5, in_service(event.unit.id.name), start=ticks)
                present = is_of_present_activation(left, event.unit, HOST, None)
                assert present is (invocation == event.unit.invocation_id), (event, ticks)
                seen += 1
    assert seen > len(restarts.ran)


@by_unit
def test_each_attempt_begins_after_the_one_before_and_with_its_first_process(restarts: Restarts) -> None:
    starts = [start for start in followed(restarts.events).starts if start.invocation_id in restarts.ran]
    assert len(starts) >= 2
    for start, after in pairwise(starts):
        assert start.end is not None
        assert start.began_monotonic + start.end.seconds < after.began_monotonic
    for start in starts:
        assert abs(start.began_monotonic - restarts.ran[start.invocation_id] / HOST.ticks_per_second) < 0.2


@by_unit
def test_each_start_is_counted_once_whatever_part_of_it_nobody_watched(restarts: Restarts) -> None:
    """Read it anew after each event, as an exporter does that was restarted, and follow it from there."""
    invocations = {event.unit.invocation_id for event in restarts.events} - {""}
    shown = [signalled(event.unit) for event in restarts.events]
    places = [(read, shown.index(signalled(read.unit))) for read in restarts.reads if signalled(read.unit) in shown]
    assert len(places) > 5
    before = None
    for number, last in enumerate(restarts.events):
        before, _ = with_unit_event(before, last)
        for read, place in places:
            if place > number:
                history = followed((read, *restarts.events[place + 1 :]), before)
                assert started(history) == {Trigger.MANUAL: 1, Trigger.AUTO: len(invocations) - 1}, (last, read)


def signalled(unit: Unit) -> Unit:
    """Leave out what reads and signals show differently."""
    return replace(unit, first_process_monotonic=None, begun_after_monotonic=None)
