"""Units whose file vanishes: which of them are told of, and for how long."""

from collections.abc import Mapping

import pytest
from tests.fakes.unit_lives import SIMPLE, Life
from tests.fakes.values import snapshot, unit

from llmhost.derive.remembered import with_vanished_units
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok

RUNS: Mapping[str, object] = {"active_state": "active", "sub_state": "running", "invocation_id": "a", "main_pid": 5}
FAILED: Mapping[str, object] = {"active_state": "failed", "sub_state": "failed", "result": "exit-code", "main_pid": 0}
AT_REST: Mapping[str, object] = {"active_state": "inactive", "sub_state": "dead", "main_pid": 0}
WITHOUT_FILE: Mapping[str, object] = {"load_state": "not-found", "unit_file_state": "", "settings": None}
GONE = {**AT_REST, **WITHOUT_FILE, "invocation_id": "", "job": 0}
STOPS: Mapping[str, object] = {"active_state": "deactivating", "sub_state": "stop-sigterm", "job": 9}


@pytest.mark.parametrize(
    ("events", "told"),
    [
        ([RUNS, GONE], True),
        ([RUNS, WITHOUT_FILE, GONE], True),  # it runs on without its file, and dies
        ([RUNS, FAILED, GONE], True),
        ([{**RUNS, "unit_file_state": "generated"}, GONE], True),
        ([RUNS, {"job": 9}, STOPS, AT_REST, GONE], False),
        ([RUNS, WITHOUT_FILE, {"job": 9}, STOPS, AT_REST, GONE], False),
        ([{**RUNS, "unit_file_state": "transient"}, GONE], False),
        ([{**AT_REST, "unit_file_state": "disabled", "settings": SIMPLE}, GONE], False),
        ([GONE], False),
        ([RUNS, GONE, {**AT_REST, "load_state": "stub", "unit_file_state": "enabled"}], False),  # it is back
    ],
)
def test_a_unit_that_should_run_and_was_not_stopped_has_vanished(
    events: list[Mapping[str, object]], told: bool
) -> None:
    life = Life(load_state="loaded")
    life.record = None
    for number, changes in enumerate(events):
        life.tell(float(number), gap=number == 0, **changes)
    assert life.now.vanished_at == ({True: 999.0 + len(events), False: None}[told])


@pytest.mark.parametrize(("later", "told"), [(0.0, True), (3599.0, True), (3600.0, False), (-1.0, False)])
def test_it_is_told_of_for_an_hour(later: float, told: bool) -> None:
    there, gone = unit("vllm-a.service"), UnitId("vllm-b.service")
    history = History(units={gone: UnitHistory(last_seen_at=0.0, vanished_at=5000.0)})
    seen = with_vanished_units(snapshot(units=[there], at=5000.0 + later), history)
    assert isinstance(seen.units, Ok)
    found = {each.id.name: each.load_state for each in seen.units.value.units}
    assert found == {"vllm-a.service": "loaded", **({"vllm-b.service": "not-found"} if told else {})}
