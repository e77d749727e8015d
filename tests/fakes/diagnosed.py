"""What the doctor finds of units that a test makes up."""

from typing import Any

from tests.fakes.values import gpu, snapshot, unit

from llmhost.config.schema import Config
from llmhost.decide.doctor.diagnose import diagnose
from llmhost.decide.doctor.finding import Finding
from llmhost.derive.host_view import Look
from llmhost.derive.facts import derive
from llmhost.model.history.history import Ledger
from llmhost.model.history.unit_history import UnitRecord
from llmhost.derive.readiness import Readiness
from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit, UnitSettings

VLLM = UnitId("vllm.service")
RECORD = UnitRecord(last_seen_at=0.0)
GUARD = (("/usr/bin/llmhost", "guard"),)
SERVE = "/usr/bin/vllm serve m"


def settings(command: str = SERVE, **given: Any) -> UnitSettings:  # noqa: ANN401 - whatever field a test cares for
    return UnitSettings(exec_start=(tuple(command.split()),), **given)


def look(
    *units: Unit,
    record: UnitRecord = RECORD,
    loads: tuple[float, ...] = (),
    policy: Config | None = None,
    **seen: Any,  # noqa: ANN401
) -> Look:
    config = policy if policy is not None else Config()
    at = snapshot(units=units, **({"gpus": [gpu(0)], "processes": []} | seen))
    readiness = {VLLM: Readiness(invocation_id="", start_seen=False, past_seconds=loads)} if loads else {}
    ledger = Ledger(units={VLLM: record}, readiness=readiness)
    return Look(snapshot=at, facts=derive(at, config, ledger), ledger=ledger, policy=config.policy)


def found(check: str, *units: Unit, **seen: Any) -> tuple[Finding, ...]:  # noqa: ANN401
    return tuple(one for one in diagnose(look(*units, **seen)) if one.check == check)


def of(check: str, given: UnitSettings, **seen: Any) -> tuple[Finding, ...]:  # noqa: ANN401
    return found(check, unit(settings=given), **seen)
