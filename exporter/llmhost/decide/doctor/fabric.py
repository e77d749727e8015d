"""Checks of the fabric manager of hosts with NVSwitch: before it has registered the GPUs no program can start. Pure."""

from collections.abc import Iterator

from llmhost.decide.doctor.finding import Case, Finding, Severity
from llmhost.derive.host_view import HostView
from llmhost.model.gpu import Gpu
from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit

FABRIC_MANAGER = UnitId("nvidia-fabricmanager.service")  # read beside the watched units


def fabric_manager(view: HostView) -> Iterator[Finding]:
    """Find a fabric manager that is missing or not running.

    Where all GPUs are registered none need be installed: behind NVLink switches in a rack it runs elsewhere.
    """
    fabric, manager = _fabric(view), _manager(view)
    if not fabric or manager is None:
        return
    waits = [gpu.index for gpu in fabric if gpu.fabric_ready is False]
    now = f"GPU {', '.join(waits)} {'is' if len(waits) == 1 else 'are'} not registered: no start there can succeed"
    if manager.load_state == "not-found":
        if waits:
            yield _finding(
                Severity.ERROR,
                "there is no fabric manager",
                f"{now}; {FABRIC_MANAGER.name} is not installed",
                f"install NVIDIA's fabric manager of the driver's version, then systemctl enable --now {_NAME}",
            )
    elif manager.active_state not in {"active", "activating", "reloading", "refreshing"}:
        yield _finding(
            Severity.ERROR if waits else Severity.WARNING,
            "the fabric manager does not run",
            f"{FABRIC_MANAGER.name} is {manager.active_state}; "
            + (now if waits else "the GPUs are registered still, and will not be after a reset or a boot"),
            f"systemctl enable --now {_NAME}; if it fails, its journal says why: often another version than the driver",
        )
    elif manager.unit_file_state == "disabled":
        yield _finding(
            Severity.WARNING,
            "the fabric manager is not started at boot",
            f"{FABRIC_MANAGER.name} is disabled, and no program can start on these GPUs before it has run",
            f"systemctl enable {_NAME}",
        )


def fabric_order(case: Case) -> Iterator[Finding]:
    """Find a unit that may start before the fabric manager; a guard would wait for the fabric."""
    manager = _manager(case.view)
    if not case.facts.engine or case.facts.guarded or manager is None or manager.load_state == "not-found":
        return
    fabric = _fabric(case.view)
    if not fabric or FABRIC_MANAGER.name in case.settings.after:
        return
    waits = [gpu.index for gpu in fabric if gpu.fabric_ready is False]
    now = f"; GPU {', '.join(waits)} is not registered now" if waits else ""
    yield case.finding(
        "fabric-order",
        Severity.ERROR if waits else Severity.WARNING,
        "may start before the fabric manager is ready",
        f"this host has an NVLink fabric, and the unit is not ordered after {FABRIC_MANAGER.name}{now}",
        "[Unit]",
        f"Wants={FABRIC_MANAGER.name}",
        f"After={FABRIC_MANAGER.name}",
    )


_NAME = FABRIC_MANAGER.name.removesuffix(".service")


def _finding(severity: Severity, what: str, why: str, remedy: str) -> Finding:
    return Finding(check="fabric-manager", severity=severity, unit="", what=what, why=why, remedy=remedy)


def _fabric(view: HostView) -> tuple[Gpu, ...]:
    return tuple(gpu for gpu in view.snapshot.gpus if gpu.fabric_ready is not None)


def _manager(view: HostView) -> Unit | None:
    """Return the fabric manager's unit; None where it was not read."""
    units = view.snapshot.watched_units
    return next((unit for unit in units if unit.id == FABRIC_MANAGER), None)
