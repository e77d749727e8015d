"""GPU memory by holder."""

from dataclasses import replace

import pytest
from tests.fakes.values import GIB, gpu, held, in_service, memory, process, snapshot, table, unit

from llmhost.derive.attribution import GpuAttribution, HolderKind, attribute
from llmhost.derive.unit_membership import ProcessRuns
from llmhost.model.gpu import Gpu, GpuHolder
from llmhost.model.ids import GpuUuid, ProcessId, RunId, UnitId
from llmhost.model.process import Home, Placement, Process
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.unit import Unit, UnitSettings


def attributed(
    gpus: list[Gpu],
    processes: list[Process],
    *units: Unit,
    orphans: frozenset[ProcessId] = frozenset(),
    process_runs: ProcessRuns | None = None,
) -> GpuAttribution:
    by_id = {watched.id: watched for watched in units}
    result = attribute(snapshot(gpus=gpus, processes=processes), by_id, orphans, process_runs or {})
    assert isinstance(result, Ok)
    first = result.value[GpuUuid("GPU-0")]
    assert isinstance(first, Ok)
    return first.value


def kind_of(holder_process: Process, *units: Unit, orphans: frozenset[ProcessId] = frozenset()) -> HolderKind:
    holding = gpu(holders=Ok((held(holder_process.id.pid, GIB, holder_process.id.start_ticks),)))
    (holder,) = attributed([holding], [holder_process], *units, orphans=orphans).holders
    return holder.kind


UP = unit()  # vllm.service, its activation began at 9 s, tick 900
WAITING = unit(active="activating", sub="auto-restart")
DIRECT = replace(WAITING, settings=UnitSettings(restart_mode="direct"), inactive_enter_monotonic=5.0)


@pytest.mark.parametrize(
    ("holder_process", "units", "kind"),
    [
        (process(7, in_service("vllm.service"), start=950), [UP], HolderKind.CURRENT),
        (process(7, in_service("vllm.service"), start=800), [UP], HolderKind.LEFTOVER),
        (process(7, in_service("vllm.service"), start=950), [WAITING], HolderKind.LEFTOVER),
        (process(7, in_service("vllm.service"), start=950), [], HolderKind.OTHER),  # systemd does not say
        (process(7, in_service("vllm.service", "user@1000")), [UP], HolderKind.OTHER),  # another manager's
        (process(7, Placement(Home.CONTAINER, container_id="ab")), [UP], HolderKind.CONTAINER),
        (process(7, Placement(Home.SESSION)), [UP], HolderKind.SESSION),
        (process(7, Placement(Home.NONE)), [UP], HolderKind.OTHER),
        (process(7, Placement(Home.SESSION), comm="Xorg"), [UP], HolderKind.SYSTEM),
        (process(7, in_service("nvidia-mps.service"), comm="nvidia-cuda-mps"), [UP], HolderKind.SYSTEM),
        (process(7, in_service("vllm.service"), start=800, comm="Xorg"), [UP], HolderKind.LEFTOVER),
        (process(7, Placement(Home.CONTAINER), comm="Xorg"), [UP], HolderKind.CONTAINER),
    ],
)
def test_the_first_kind_that_fits_is_the_holders(holder_process: Process, units: list[Unit], kind: HolderKind) -> None:
    assert kind_of(holder_process, *units) is kind


@pytest.mark.parametrize(
    ("holder_process", "units", "kind"),
    [
        (process(7, Placement(Home.SESSION)), [UP], HolderKind.ORPHAN),
        (process(7, Placement(Home.CONTAINER, container_id="ab")), [UP], HolderKind.ORPHAN),
        (process(7, Placement(Home.NONE)), [UP], HolderKind.ORPHAN),
        (process(7, in_service("vllm.service", "user@1000")), [UP], HolderKind.ORPHAN),  # nobody asks that manager
        (process(7, in_service("vllm.service")), [], HolderKind.ORPHAN),  # systemd does not say
        # what its unit proves goes before
        (process(7, in_service("vllm.service"), start=800), [UP], HolderKind.LEFTOVER),
        (process(7, in_service("vllm.service"), start=950), [WAITING], HolderKind.LEFTOVER),
        (process(7, in_service("vllm.service"), start=950), [UP], HolderKind.CURRENT),
    ],
)
def test_an_orphan_is_one_unless_its_unit_proves_more(
    holder_process: Process, units: list[Unit], kind: HolderKind
) -> None:
    assert kind_of(holder_process, *units, orphans=frozenset({holder_process.id})) is kind
    assert (
        kind_of(holder_process, *units, orphans=frozenset({ProcessId(7, holder_process.id.start_ticks + 1)}))
        is not HolderKind.ORPHAN
    )


def test_a_pid_that_proc_does_not_have_is_gone_and_its_memory_counts() -> None:
    result = attributed([gpu(memory=memory(used=10 * GIB), holders=Ok((held(3591263, 10 * GIB, None),)))], [])
    assert [(holder.kind, holder.unit, holder.used_bytes) for holder in result.holders] == [
        (HolderKind.GONE, None, 10 * GIB)
    ]
    assert result.unattributed_bytes == Ok(0)


def test_a_process_that_proc_lists_but_does_not_show_is_not_gone() -> None:
    processes = replace(table([]), denied=frozenset({7}), read_from_ticks=5000)
    hidden = snapshot(gpus=[gpu(holders=Ok((held(7, GIB), held(8, GIB, 5000), held(9, GIB, 4999))))])
    result = attribute(replace(hidden, processes=Ok(processes)), {}, frozenset(), {})
    assert isinstance(result, Ok)
    first = result.value[GpuUuid("GPU-0")]
    assert isinstance(first, Ok)
    # not readable; started after the table was begun; ended
    assert [holder.kind for holder in first.value.holders] == [HolderKind.OTHER, HolderKind.OTHER, HolderKind.GONE]


def test_another_process_that_got_the_pid_is_not_blamed() -> None:
    reused = process(4242, in_service("sshd.service"), start=5000)
    result = attributed([gpu(holders=Ok((held(4242, GIB, start=1000),)))], [reused], unit("sshd.service"))
    assert result.holders[0].kind is HolderKind.GONE
    assert result.holders[0].unit is None


def test_unattributed_is_what_is_used_less_what_is_held() -> None:
    holders = (held(1, 5 * GIB), held(2, 8 * GIB))
    result = attributed([gpu(memory=memory(used=58 * GIB), holders=Ok(holders))], [process(1), process(2)])
    assert result.unattributed_bytes == Ok(45 * GIB)


def test_shared_buffers_never_make_it_negative() -> None:
    result = attributed([gpu(memory=memory(used=GIB), holders=Ok((held(1, 2 * GIB),)))], [process(1)])
    assert result.unattributed_bytes == Ok(0)


def test_a_holder_of_unknown_size_leaves_the_rest_unknown() -> None:
    holders: tuple[GpuHolder, ...] = (held(1, None), held(2, GIB))
    result = attributed([gpu(memory=memory(used=14 * GIB), holders=Ok(holders))], [process(1), process(2)])
    assert isinstance(result.unattributed_bytes, Failed)
    assert result.unattributed_bytes.cause is Cause.NOT_SUPPORTED
    assert len(result.holders) == 2


def test_without_processes_there_is_no_attribution() -> None:
    blind = snapshot(gpus=[gpu()], processes=None)
    result = attribute(blind, {UnitId("vllm.service"): UP}, frozenset(), {})
    assert result == blind.processes


def test_a_gpu_whose_lists_failed_costs_itself_only() -> None:
    lost = gpu(1, holders=Failed(Cause.LOST), memory=Failed(Cause.LOST), fault=Cause.LOST)
    result = attribute(snapshot(gpus=[gpu(0), lost], processes=[]), {}, frozenset(), {})
    assert isinstance(result, Ok)
    assert isinstance(result.value[GpuUuid("GPU-0")], Ok)
    assert result.value[GpuUuid("GPU-1")] == Failed(Cause.LOST)


INVOKED = unit(invocation_id="now")
ELSEWHERE = Placement(Home.SESSION)


def known_as(invocation: str, name: str = "vllm.service") -> dict[ProcessId, RunId]:
    return {ProcessId(7, 950): RunId(unit=UnitId(name), invocation_id=invocation)}


@pytest.mark.parametrize(
    ("placement", "process_runs", "kind", "of"),
    [
        # it is where it was: that beats the clock, which says present
        (in_service("vllm.service"), known_as("now"), HolderKind.CURRENT, "vllm.service"),
        (in_service("vllm.service"), known_as("before"), HolderKind.LEFTOVER, "vllm.service"),
        # it has moved to a session
        (ELSEWHERE, known_as("now"), HolderKind.CURRENT, "vllm.service"),
        (ELSEWHERE, known_as("before"), HolderKind.LEFTOVER, "vllm.service"),
        (in_service("sshd.service"), known_as("before"), HolderKind.LEFTOVER, "vllm.service"),
        # or to another watched unit, which has it now
        (in_service("vllm.service"), known_as("before", "sglang.service"), HolderKind.CURRENT, "vllm.service"),
        # it was of a unit that is not watched any more
        (ELSEWHERE, known_as("before", "gone.service"), HolderKind.SESSION, None),
    ],
)
def test_a_process_that_was_seen_in_an_activation_is_of_that_wherever_it_is(
    placement: Placement, process_runs: dict[ProcessId, RunId], kind: HolderKind, of: str | None
) -> None:
    holding = gpu(holders=Ok((held(7, GIB, 950),)))
    (holder,) = attributed([holding], [process(7, placement, start=950)], INVOKED, process_runs=process_runs).holders
    assert (holder.kind, holder.unit) == (kind, None if of is None else UnitId(of))


def test_of_a_unit_that_waits_to_restart_what_is_left_is_of_the_run_that_has_ended() -> None:
    waiting = unit(active="activating", sub="auto-restart", invocation_id="now")
    holding = gpu(holders=Ok((held(7, GIB, 950),)))
    found = attributed([holding], [process(7, ELSEWHERE, start=950)], waiting, process_runs=known_as("now"))
    assert found.holders[0].kind is HolderKind.LEFTOVER


@pytest.mark.parametrize(
    ("read_at", "watched", "process_runs", "kind"),
    [
        # it was there when the present run, which began at 9 s, had begun; or was to begin, and it may be gone by now
        (9.0, UP, {}, HolderKind.LEFTOVER),
        (8.9, UP, {}, HolderKind.OTHER),
        # of a unit that waits to restart since 9 s
        (9.0, replace(WAITING, inactive_enter_monotonic=9.0), {}, HolderKind.LEFTOVER),
        (8.9, replace(WAITING, inactive_enter_monotonic=9.0), {}, HolderKind.OTHER),
        (9.0, replace(DIRECT, state_change_monotonic=9.0), {}, HolderKind.LEFTOVER),
        (8.9, replace(DIRECT, state_change_monotonic=9.0), {}, HolderKind.OTHER),
        # it started (8 s) since the end: it may be of a run that systemd is about to tell of, but not for long
        (9.0, replace(WAITING, inactive_enter_monotonic=8.0), {}, HolderKind.OTHER),
        (17.9, replace(WAITING, inactive_enter_monotonic=8.0), {}, HolderKind.OTHER),
        (18.1, replace(WAITING, inactive_enter_monotonic=8.0), {}, HolderKind.LEFTOVER),
        # it was seen in an earlier run
        (9.0, replace(UP, invocation_id="now"), known_as("before"), HolderKind.LEFTOVER),
        (8.9, replace(UP, invocation_id="now"), known_as("before"), HolderKind.OTHER),
        (8.9, replace(UP, invocation_id="now"), known_as("now"), HolderKind.CURRENT),
    ],
)
def test_a_process_that_was_read_before_its_run_had_ended_is_no_leftover_yet(
    read_at: float, watched: Unit, process_runs: dict[ProcessId, RunId], kind: HolderKind
) -> None:
    start = next(iter(process_runs), ProcessId(7, 800)).start_ticks
    found = replace(table([process(7, in_service("vllm.service"), start=start)]), read_at_monotonic=read_at)
    read = replace(snapshot(gpus=[gpu(holders=Ok((held(7, GIB, start),)))]), processes=Ok(found))
    result = attribute(read, {watched.id: watched}, frozenset(), process_runs)
    assert isinstance(result, Ok)
    first = result.value[GpuUuid("GPU-0")]
    assert isinstance(first, Ok)
    assert [holder.kind for holder in first.value.holders] == [kind]


def test_what_has_gone_was_a_units_if_it_was_seen_there_and_stays_gone() -> None:
    holding = gpu(holders=Ok((held(7, GIB, 950), held(8, GIB, None))))
    found = attributed([holding], [], INVOKED, process_runs=known_as("now"))
    assert [(holder.kind, holder.unit) for holder in found.holders] == [
        (HolderKind.GONE, UnitId("vllm.service")),
        (HolderKind.GONE, None),
    ]


def test_the_name_of_a_system_program_hides_no_process_that_a_unit_left() -> None:
    holding = gpu(holders=Ok((held(7, GIB, 950),)))
    hidden = process(7, ELSEWHERE, start=950, comm="Xorg")
    assert attributed([holding], [hidden], INVOKED).holders[0].kind is HolderKind.SYSTEM
    assert attributed([holding], [hidden], INVOKED, process_runs=known_as("old")).holders[0].kind is HolderKind.LEFTOVER
