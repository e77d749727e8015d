"""Of the fabric manager, on hosts with NVSwitch: missing, stopped, not started at boot, not waited for."""

from typing import Any

from tests.fakes.doctor_cases import GUARD, found, settings
from tests.fakes.values import gpu, unit

from llmhost.decide.doctor.finding import Finding, Severity
from llmhost.model.gpu import Gpu
from llmhost.model.unit import Unit, UnitSettings

READY = (gpu(0, fabric_ready=True), gpu(1, fabric_ready=True))
WAITING = (gpu(0, fabric_ready=True), gpu(1, fabric_ready=False))
NAME = "nvidia-fabricmanager.service"
MISSING = unit(NAME, active="inactive", sub="dead", load_state="not-found", unit_file_state="", settings=None)


def manager(active: str = "active", **given: Any) -> Unit:  # noqa: ANN401
    return unit(NAME, active=active, sub="running" if active == "active" else "dead", **given)


def of_host(beside: Unit, gpus: tuple[Gpu, ...]) -> tuple[Finding, ...]:
    return found("fabric-manager", beside, gpus=gpus)


def test_one_that_is_missing_is_an_error_where_gpus_wait_for_it() -> None:
    (finding,) = of_host(MISSING, WAITING)
    assert (finding.severity, finding.unit) == (Severity.ERROR, "")
    assert finding.why.startswith("GPU 1 is not registered")
    assert of_host(MISSING, READY) == (), "it runs elsewhere"
    assert of_host(MISSING, (gpu(0),)) == (), "no fabric"


def test_one_that_does_not_run_is_found() -> None:
    (stopped,) = of_host(manager("inactive"), READY)
    assert (stopped.severity, "is inactive" in stopped.why) == (Severity.WARNING, True)
    (failed,) = of_host(manager("failed"), (gpu(0, fabric_ready=False), gpu(1, fabric_ready=False)))
    assert (failed.severity, "GPU 0, 1 are not registered" in failed.why) == (Severity.ERROR, True)
    assert "systemctl enable --now nvidia-fabricmanager" in failed.remedy
    assert of_host(manager("activating"), WAITING) == (), "it is at it"
    assert of_host(manager(), READY) == ()


def test_one_that_is_not_started_at_boot_is_found() -> None:
    (finding,) = of_host(manager(unit_file_state="disabled"), READY)
    assert (finding.severity, finding.what) == (Severity.WARNING, "the fabric manager is not started at boot")
    for state in ("enabled", "static", "indirect"):
        assert of_host(manager(unit_file_state=state), READY) == ()


def test_a_unit_that_is_not_ordered_after_it_is_found() -> None:
    def order(given: UnitSettings, beside: Unit | None, gpus: tuple[Gpu, ...]) -> tuple[Finding, ...]:
        return found("fabric-order", unit(settings=given), *([beside] if beside else []), gpus=gpus)

    (finding,) = order(settings(), manager(), READY)
    assert finding.severity is Severity.WARNING
    assert finding.drop_in == ("[Unit]", f"Wants={NAME}", f"After={NAME}")
    (late,) = order(settings(), manager(), WAITING)
    assert late.severity is Severity.ERROR
    assert "GPU 1 is not registered now" in late.why
    assert order(settings(), manager(), (gpu(0),)) == ()
    assert order(settings(after=("basic.target", NAME)), manager(), READY) == ()
    assert order(settings(exec_start_pre=GUARD), manager(), WAITING) == (), "its guard waits for the fabric"
    assert order(settings("/usr/bin/other"), manager(), READY) == ()
    assert order(settings(), MISSING, READY) == (), "there is nothing to be ordered after"
    assert order(settings(), None, READY) == (), "nobody looked"
