"""Relatives of watched units, which come and go while others are being read."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from llmhost.sources.systemd.names import unit_path
from llmhost.sources.systemd.properties.relations import Relation
from llmhost.sources.systemd.units import relatives as module
from llmhost.sources.systemd.units.relatives import Relatives


class Answering:
    """A bus and a systemd that answer each call a while later, all the same."""

    def __init__(self) -> None:
        self.bus = self
        self.rules: list[str] = []

    async def call(self, _callee: object, member: str, _signature: str, rule: str) -> None:
        await asyncio.sleep(0)
        if member == "AddMatch":
            self.rules.append(rule)
        else:
            self.rules.remove(rule)

    async def unit_path(self, name: str) -> str:
        await asyncio.sleep(0)
        return unit_path(name)

    async def properties(self, _path: str, on_reply: Callable[[dict[str, Any]], None]) -> None:
        await asyncio.sleep(0)
        on_reply({"ActiveState": "active", "SubState": "running"})


def relations(*names: str) -> tuple[Relation, ...]:
    return tuple(Relation("WantedBy", name) for name in names)


def known(relatives: Relatives, watched: str) -> dict[str, str]:
    return {relative.name: relative.active_state for relative in relatives.of(watched)}


def test_units_that_go_at_once_end_nothing_but_what_they_alone_were_related_to() -> None:
    systemd = Answering()
    relatives = Relatives(systemd, lambda _: True)  # type: ignore[arg-type]

    async def come_and_go() -> None:
        for unit in "abc":
            await relatives.learn(unit, relations(*(f"{unit}{number}.target" for number in range(4)), "all.target"))
        learning = relatives.learn("d", relations("d1.target", "d2.target"))
        await asyncio.gather(learning, *(relatives.forget(unit) for unit in "abc"))

    asyncio.run(come_and_go())
    assert known(relatives, "d") == {"d1.target": "active", "d2.target": "active"}
    assert [relatives.follows(unit_path(name)) for name in ("d1.target", "a1.target", "all.target")] == [1, 0, 0]
    assert len(systemd.rules) == 2


def test_a_unit_that_has_gone_is_related_to_nothing() -> None:
    systemd = Answering()
    relatives = Relatives(systemd, lambda name: name != "gone")  # type: ignore[arg-type]
    asyncio.run(relatives.learn("gone", relations("a.target")))
    assert (relatives.of("gone"), systemd.rules) == ((), [])


def test_of_what_is_one_too_many_to_be_followed_no_state_is_said(monkeypatch: Any) -> None:  # noqa: ANN401
    monkeypatch.setattr(module, "MAX_FOLLOWED", 1)
    relatives = Relatives(Answering(), lambda _: True)  # type: ignore[arg-type]
    asyncio.run(relatives.learn("a", relations("a.target", "b.target")))
    assert known(relatives, "a") == {"a.target": "active", "b.target": ""}


UP, DEAD, STOPS, RELOADS = (
    {"ActiveState": state, "SubState": state} for state in ("active", "failed", "deactivating", "reloading")
)
JOB, NONE = {"Job": [7, "/7"]}, {"Job": [0, "/"]}


@pytest.mark.parametrize(
    ("signals", "asked"),
    [
        ([DEAD], False),
        ([STOPS, DEAD], False),
        ([JOB, STOPS, DEAD | NONE], True),
        ([STOPS | JOB, DEAD | NONE], True),
        ([STOPS, DEAD | JOB], False),  # a start that waits for its end
        ([JOB, RELOADS, DEAD | NONE], False),  # it dies while it reloads
        ([JOB, RELOADS, UP | NONE, {"Job": [8, "/8"]}, STOPS, DEAD | NONE], True),
        ([DEAD, {"ActiveState": "activating"} | JOB, DEAD], False),  # it dies as it starts
    ],
)
def test_a_relative_that_goes_down_was_asked_to_where_a_job_of_a_stop_was_there(
    signals: list[dict[str, Any]], asked: bool
) -> None:
    relatives = Relatives(Answering(), lambda _: True)  # type: ignore[arg-type]
    asyncio.run(relatives.learn("a", (Relation("BindsTo", "fabric.service"),)))
    for properties in signals:
        relatives.changed(unit_path("fabric.service"), properties)
    assert [relative.asked_to_end for relative in relatives.of("a")] == [asked]
