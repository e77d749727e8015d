"""The memory release of ended runs, on GPUs with other holders as well."""

import pytest

from llmhost.config.schema import Policy
from llmhost.derive.memory_release import PendingRelease, after_reading, pending_release
from llmhost.model.history.history import Holdings
from llmhost.model.ids import GpuUuid, RunId, UnitId
from llmhost.model.reading import Cause, Failed, Ok

GIB = 1 << 30
MIB = 1 << 20
RUN = RunId(unit=UnitId("vllm.service"), invocation_id="a")
A, B = GpuUuid("GPU-0"), GpuUuid("GPU-1")
# 60 GiB of its own on each of two GPUs; others have 12 GiB beside it on the second
HELD = Holdings(invocation_id="a", own_bytes={A: 60 * GIB, B: 60 * GIB}, others_bytes={A: 0, B: 12 * GIB})


def pending(a: int, b: int, holdings: Holdings | None = HELD, *, known: bool = True) -> PendingRelease | None:
    return pending_release(
        RUN,
        100.0,
        gpus=Ok((A, B)) if known else Failed(Cause.UNKNOWN),
        used_at_end={A: a, B: b, GpuUuid("GPU-2"): 70 * GIB},
        holdings=holdings,
        policy=Policy(),
    )


def waited_for(release: PendingRelease, used_bytes: dict[GpuUuid, int]) -> set[GpuUuid]:
    still = after_reading(release, used_bytes)
    assert still is not None
    return set(still.back_at_bytes)


def test_it_is_back_when_no_more_is_in_use_than_others_had_and_a_little() -> None:
    release = pending(60 * GIB, 72 * GIB)
    assert release is not None
    assert (release.run, release.ended_monotonic) == (RUN, 100.0)
    assert release.back_at_bytes == {A: 1000 * MIB, B: 12 * GIB + 1000 * MIB}
    assert waited_for(release, {A: 20 * GIB, B: 12 * GIB}) == {A}
    assert waited_for(release, {A: 1000 * MIB, B: 12 * GIB + 1001 * MIB}) == {B}
    assert waited_for(release, {A: 1000 * MIB, B: 12 * GIB + 1000 * MIB}) == set()


def test_a_gpu_that_is_back_may_be_taken_again_while_the_other_one_is_waited_for() -> None:
    release = pending(60 * GIB, 72 * GIB)
    assert release is not None
    half = after_reading(release, {A: 0, B: 72 * GIB})
    assert half is not None
    assert waited_for(half, {A: 60 * GIB, B: 12 * GIB}) == set()


@pytest.mark.parametrize(
    ("a", "b", "known"),
    [
        (60 * GIB + 1000 * MIB, 72 * GIB, True),
        (60 * GIB + 1001 * MIB, 72 * GIB, False),  # somebody takes memory
        (60 * GIB, 12 * GIB - 1000 * MIB, True),
        (60 * GIB, 12 * GIB - 1001 * MIB, False),  # others have freed some: the run's own may still be there
    ],
)
def test_where_others_memory_changes_meanwhile_no_time_is_known(a: int, b: int, *, known: bool) -> None:
    release = pending(60 * GIB, 72 * GIB)
    assert release is not None
    assert (after_reading(release, {A: a, B: b}) is not None) is known
    # it falls first, and rises from there
    fallen = after_reading(release, {A: 30 * GIB, B: 72 * GIB})
    assert fallen is not None
    assert after_reading(fallen, {A: 30 * GIB + 1001 * MIB, B: 72 * GIB}) is None


def test_nothing_is_waited_for_where_nothing_is_there_any_more() -> None:
    assert pending(1000 * MIB, 12 * GIB + 1000 * MIB) is None
    half = pending(1000 * MIB, 50 * GIB)
    assert half is not None
    assert half.back_at_bytes.keys() == {B}  # what others do on a GPU that is back does not matter


def test_of_a_run_that_no_observation_has_others_are_taken_to_have_nothing() -> None:
    for unseen in (None, Holdings(invocation_id="before", own_bytes={}, others_bytes={A: 50 * GIB})):
        release = pending(60 * GIB, 12 * GIB, unseen)
        assert release is not None
        assert release.back_at_bytes == {A: 1000 * MIB, B: 1000 * MIB}


def test_what_a_run_found_and_never_held_is_not_waited_for_after_its_end() -> None:
    # it was refused, with 700 MiB of its own, while 60 GiB of the run before were still there
    refused = Holdings(invocation_id="a", own_bytes={A: 700 * MIB, B: 1000 * MIB}, others_bytes={A: 0, B: 0})
    assert pending(60 * GIB, 60 * GIB, refused) is None
    release = pending(60 * GIB, 60 * GIB, Holdings(invocation_id="a", own_bytes={A: 0, B: 1001 * MIB}, others_bytes={}))
    assert release is not None
    assert release.back_at_bytes == {B: 1000 * MIB}


def test_where_the_set_is_not_known_the_gpus_that_it_was_seen_on_count() -> None:
    holdings = Holdings(invocation_id="a", own_bytes={A: 60 * GIB, B: 0}, others_bytes={A: 0, B: 12 * GIB})
    release = pending(60 * GIB, 30 * GIB, holdings, known=False)
    assert release is not None
    assert release.back_at_bytes == {A: 1000 * MIB}
    assert pending(60 * GIB, 30 * GIB, None, known=False) is None


def test_a_gpu_without_an_answer_is_waited_for() -> None:
    release = pending(60 * GIB, 72 * GIB)
    assert release is not None
    assert waited_for(release, {A: 0}) == {B}
    assert waited_for(release, {B: 72 * GIB}) == {A, B}
