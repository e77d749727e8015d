"""Findings of the doctor about made-up units."""

from typing import Any

from tests.fakes.values import gpu, snapshot, unit

from llmhost.config.schema import Config
from llmhost.decide.doctor.diagnose import diagnose
from llmhost.decide.doctor.finding import Finding
from llmhost.derive.host_view import HostView, host_view
from llmhost.model.history.history import History, Readiness
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit, UnitSettings

VLLM = UnitId("vllm.service")
RECORD = UnitHistory(last_seen_at=0.0)
GUARD = (("/usr/bin/llmhost", "guard"),)
SERVE = "/usr/bin/vllm serve m"


def settings(command: str = SERVE, **given: Any) -> UnitSettings:  # noqa: ANN401 - whatever field a test cares for
    return UnitSettings(exec_start=(tuple(command.split()),), **given)


def view(
    *units: Unit,
    record: UnitHistory = RECORD,
    loads: tuple[float, ...] = (),
    policy: Config | None = None,
    **readings: Any,  # noqa: ANN401
) -> HostView:
    config = policy if policy is not None else Config()
    at = snapshot(units=units, **({"gpus": [gpu(0)], "processes": []} | readings))
    readiness = {VLLM: Readiness(invocation_id="", start_seen=False, past_seconds=loads)} if loads else {}
    history = History(units={VLLM: record}, readiness=readiness)
    return host_view(at, history, config)


def found(check: str, *units: Unit, **readings: Any) -> tuple[Finding, ...]:  # noqa: ANN401
    return tuple(finding for finding in diagnose(view(*units, **readings)) if finding.check == check)


def of(check: str, given: UnitSettings, **readings: Any) -> tuple[Finding, ...]:  # noqa: ANN401
    return found(check, unit(settings=given), **readings)
