"""The history's document: what is in it, what is refused and why, and how it is kept small."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest
from tests.fakes.histories import BIG, BOOT, FILE_1, WRITTEN_DOWN, with_starts

from llmhost.model.history.history import History, LearntGpus, Readiness
from llmhost.model.ids import ProcessId, RunId, UnitId
from llmhost.state.history_document import NoHistoryError, document_of, encode_cache, history_of


def written(history: History, most_bytes: int = 16 << 20) -> bytes:
    return document_of(history, saved_at=1764468000.5, llmhost="0.1.0", cache=encode_cache(), most_bytes=most_bytes)


def changed(**members: object) -> bytes:
    document: Mapping[str, object] = json.loads(FILE_1.read_text())
    return json.dumps({**document, **members}).encode()


def history_with(**members: object) -> bytes:
    return changed(history={**json.loads(FILE_1.read_text())["history"], **members})


def test_a_file_of_version_1_is_read_as_what_was_written_down() -> None:
    assert history_of(FILE_1.read_bytes()) == WRITTEN_DOWN


def test_what_is_written_is_read_as_the_same_history() -> None:
    assert history_of(written(WRITTEN_DOWN)) == WRITTEN_DOWN


def test_a_document_says_what_it_is_and_when_and_by_whom_it_was_written() -> None:
    document = json.loads(written(WRITTEN_DOWN))
    del document["history"]
    assert document == {"format": "llmhost history", "version": 1, "llmhost": "0.1.0", "saved_at": 1764468000.5}
    assert written(History()).count(b"\n") == 1
    assert written(History()).endswith(b"}\n")


def test_a_field_that_only_a_newer_llmhost_knows_is_no_fault() -> None:
    assert history_of(history_with(of_a_newer_llmhost={"a": 1})) == WRITTEN_DOWN
    assert history_of(changed(of_a_newer_llmhost=1)) == WRITTEN_DOWN


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        (b"", "it is empty"),
        (b"\0" * 4096, "it is no JSON: "),
        (b"\xff\xfe{}", "it is no JSON: 'utf-8' codec"),
        (b"[" * 100_000, "it is nested too deeply"),
        (b"[]", 'it is JSON, but does not say "format": "llmhost history"'),
        (b'{"version": 1, "history": {}}', 'it is JSON, but does not say "format": "llmhost history"'),
        (b'{"format": "llmhost history"}', "it does not say of which version it is"),
        (changed(version=True), "it does not say of which version it is"),
        (changed(version=0), "it does not say of which version it is"),
        (changed(version=2), "it is of version 2, from a newer llmhost; this one reads version 1"),
        (changed(history=None), "history: is null, not an object"),
        (history_with(boot_id=7), "history.boot_id: is a number, not text"),
        (history_with(units={}), "history.units: is an object, not a list"),
        (history_with(shm_at=float("nan")), "NaN is no number of JSON's"),
        (
            history_with(units=[[{"name": "a.service"}, {"last_seen_at": "x"}]]),
            "history.units[0][1].last_seen_at: is text",
        ),
        (
            history_with(units=[[{"name": "a.service"}, {"last_seen_at": 1, "failures_total": {"signal": -1}}]]),
            "history.units[0][1].failures_total['signal']: is below 0",
        ),
        (
            history_with(units=[[{"name": "a.service"}, {"last_seen_at": 1, "state_seconds": {"active": -0.5}}]]),
            "history.units[0][1].state_seconds['active']: is below 0",
        ),
        (
            b'{"format": "llmhost history", "version": 1, "history": {}, "history": {}}',
            "an object has the member 'history' twice",
        ),
        (
            b'{"format": "llmhost history", "version": 1, "history": {"shm_at": ' + b"9" * 5000 + b"}}",
            "it is no JSON: ",
        ),
    ],
)
def test_what_is_no_history_is_refused_with_the_reason(content: bytes, complaint: str) -> None:
    with pytest.raises(NoHistoryError) as refused:
        history_of(content)
    assert str(refused.value).startswith(complaint)
    assert "\n" not in str(refused.value)


def test_whatever_stands_in_place_of_any_one_value_it_is_read_or_refused() -> None:
    document = json.loads(FILE_1.read_text())
    places = list(containers(document))
    assert len(places) > 150
    for container, key in places:
        before = container[key]
        replacements: tuple[object, ...] = (
            None,
            True,
            -1,
            2**64,
            1e308,
            "",
            "é" * 1000,
            [],
            [[]],
            {},
            {"": {}},
            [[1, 2]],
        )
        for other in replacements:
            container[key] = other
            try:
                assert isinstance(history_of(json.dumps(document).encode()), History)
            except NoHistoryError as refused:
                assert len(str(refused)) < 300  # noqa: PT017 - most are
        container[key] = before
    assert history_of(json.dumps(document).encode()) == WRITTEN_DOWN


def containers(value: Any) -> Iterator[tuple[Any, Any]]:  # noqa: ANN401 - JSON
    """Give each place of a document as what it is in, and by which key."""
    keys: Any = value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    for key in keys:
        yield value, key
        yield from containers(value[key])


def without_starts(history: History, fewer: Mapping[UnitId, int]) -> History:
    units = {unit: replace(kept, starts=kept.starts[fewer.get(unit, 0) :]) for unit, kept in history.units.items()}
    return replace(history, units=units)


def test_the_oldest_starts_are_left_out_first_whosever_they_are() -> None:
    # starts of unit 0 at 0, 1, … 9 s, of unit 1 at 2, 3, … 11 s, from the same moment
    first, second = UnitId("vllm@0.service"), UnitId("vllm@1.service")
    history = with_starts(units=2, starts=10)
    later = tuple(replace(start, at=start.at + 1) for start in history.units[second].starts)
    history = replace(history, units={**history.units, second: replace(history.units[second], starts=later)})
    three, five = without_starts(history, {first: 3}), without_starts(history, {first: 4, second: 1})
    # the third second has a start of each: unit 0's is looked at first
    assert history_of(written(history, len(written(history)) - 1)) == without_starts(history, {first: 1})
    assert history_of(written(history, len(written(three)))) == three
    assert history_of(written(history, len(written(five)))) == five


def test_the_latest_start_of_a_unit_stays_and_units_unseen_for_longest_go_next() -> None:
    units = [UnitId(f"vllm@{number}.service") for number in range(4)]
    history = replace(
        with_starts(units=4, starts=3),
        gpu_sets={unit: LearntGpus(invocation_id="", uuids=()) for unit in units},
        readiness={unit: Readiness(invocation_id="", start_seen=False) for unit in units},
    )
    small = written(
        replace(
            history, units={unit: replace(history.units[unit], starts=history.units[unit].starts[2:]) for unit in units}
        )
    )
    fits = history_of(written(history, len(small)))
    assert [record.starts for record in fits.units.values()] == [record.starts[2:] for record in history.units.values()]
    fewer = history_of(written(history, len(small) - 1))
    assert list(fewer.units) == units[1:]
    assert list(fewer.gpu_sets) == units[1:]
    assert list(fewer.readiness) == units[1:]


def test_what_can_be_seen_again_goes_before_history_where_it_is_most_of_it() -> None:
    history = replace(
        WRITTEN_DOWN, process_runs={ProcessId(pid, 1): RunId(unit=BIG, invocation_id="") for pid in range(1000)}
    )
    read = history_of(written(history, len(written(WRITTEN_DOWN))))
    assert read.process_runs == {}
    assert (read.boot_id, read.units, read.gpu_sets, read.readiness) == (
        BOOT,
        WRITTEN_DOWN.units,
        WRITTEN_DOWN.gpu_sets,
        WRITTEN_DOWN.readiness,
    )


def test_a_thousand_units_with_all_their_starts_come_to_less_than_16_mib() -> None:
    content = written(with_starts(units=1000, starts=50))
    assert 12 << 20 < len(content) <= 16 << 20
    read = history_of(content)
    assert len(read.units) == 1000
    assert sum(len(record.starts) for record in read.units.values()) < 50_000
