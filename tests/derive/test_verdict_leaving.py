"""Starts while another unit on the same GPU goes down: both were restarted at once, say."""

from dataclasses import replace

from tests.fakes.judging import MAIN, ME, SERVICE, in_use, judged, outcome, starting
from tests.fakes.values import GIB, held, in_service, process, unit

from llmhost.model.history.history import History, Holdings
from llmhost.model.history.unit_history import Verdict
from llmhost.model.ids import GpuUuid, RunId, UnitId
from llmhost.model.process import Role
from llmhost.model.reading import Cause, Failed

TENANT = UnitId("sglang.service")
WORKER = process(600, in_service("sglang.service"), start=1500, engine="sglang", role=Role.WORKER)
STOPPING = unit("sglang.service", "deactivating", "stop-sigterm", invocation_id="t")
STOPPED = replace(STOPPING, active_state="inactive", sub_state="dead", inactive_enter_monotonic=301.0)
OBSERVED = History(
    holdings={TENANT: Holdings(invocation_id="t", own_bytes={GpuUuid("GPU-0"): 40 * GIB}, others_bytes={})},
    process_runs={WORKER.id: RunId(unit=TENANT, invocation_id="t")},
)
START = starting("vllm serve m --gpu-memory-utilization 0.45")  # its main process began at 300.01 s
UNKNOWN = Failed(Cause.UNKNOWN, "GPU 0: a unit that has gone down since may have held what nobody holds")


def test_unattributed_memory_may_be_that_of_a_unit_that_went_down_since() -> None:
    for tenant in (STOPPING, STOPPED):
        assert judged([in_use(0, 0)], [MAIN], START, used={0: 40 * GIB}, units=[tenant], history=OBSERVED) == UNKNOWN
    # what is more than that is in the way for certain, and so is an old worker
    more = judged([in_use(0, 0)], [MAIN], START, used={0: 42 * GIB}, units=[STOPPED], history=OBSERVED)
    assert outcome(more) == (Verdict.RESIDENT, [("0", "unattributed", 42 * GIB)])
    old = process(500, SERVICE, start=12000)
    beside = [in_use(0, 2 * GIB, held(500, 2 * GIB, 12000))]
    both = judged(beside, [MAIN, old], START, used={0: 42 * GIB}, units=[STOPPED], history=OBSERVED)
    assert outcome(both) == (Verdict.RESIDENT, [("0", "leftover", 2 * GIB), ("0", "unattributed", 40 * GIB)])


def test_a_worker_of_a_unit_that_went_down_since_was_of_a_unit_that_was_up() -> None:
    lingering = [in_use(0, 40 * GIB, held(600, 40 * GIB, 1500))]
    waiting = replace(STOPPED, active_state="activating", sub_state="auto-restart")
    for tenant in (STOPPED, waiting):
        assert outcome(judged(lingering, [MAIN, WORKER], START, units=[tenant], history=OBSERVED)) == (
            Verdict.CLEAN,
            [],
        )


def test_what_a_unit_that_went_down_before_the_start_left_is_in_the_way() -> None:
    before = replace(STOPPED, inactive_enter_monotonic=299.0)
    releasing = judged([in_use(0, 0)], [MAIN], START, used={0: 40 * GIB}, units=[before], history=OBSERVED)
    assert outcome(releasing) == (Verdict.RESIDENT, [("0", "unattributed", 40 * GIB)])
    lingering = [in_use(0, 40 * GIB, held(600, 40 * GIB, 1500))]
    result = judged(lingering, [MAIN, WORKER], START, units=[before], history=OBSERVED)
    assert outcome(result) == (Verdict.RESIDENT, [("0", "leftover", 40 * GIB)])


def test_a_unit_that_goes_down_unobserved_leaves_the_memory_unknown() -> None:
    result = judged([in_use(0, 0)], [MAIN], START, used={0: 40 * GIB}, units=[STOPPED])
    assert outcome(result)[0] is Verdict.RESIDENT
    observed = replace(
        OBSERVED, holdings={ME: OBSERVED.holdings[TENANT]}
    )  # nor does the unit's own last run excuse anything
    assert outcome(judged([in_use(0, 0)], [MAIN], START, used={0: 40 * GIB}, history=observed))[0] is Verdict.RESIDENT
