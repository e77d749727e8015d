"""The health of the host: findings, unknowns, and the level that follows from them. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from llmhost.decide.left_behind import left_behind, leftovers_of
from llmhost.decide.unit_trouble import unit_trouble
from llmhost.derive.activation import is_up, run_changed_since
from llmhost.derive.history.readiness import ready_budget_seconds
from llmhost.derive.host_view import HostView
from llmhost.model.engine import EngineAnswer
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.ids import UnitId
from llmhost.model.process import Process, Role
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok
from llmhost.model.unit import Unit

HISTORY: Final = "history"
_NO_GPU_HERE = frozenset({Cause.NO_LIBRARY, Cause.NO_GPU})
_BROKEN_DRIVER: Mapping[Cause, str] = {
    Cause.NO_DRIVER: "its kernel module is not loaded",
    Cause.DRIVER_MISMATCH: "its library is of another version than the loaded module: no program can start",
    Cause.TIMEOUT: "it does not answer",
    Cause.LOST: "a GPU fell off the bus",
    Cause.RESET_REQUIRED: "a GPU needs a reset",
}
# What a unit's other findings come from stands before them, and the unit that is worst off before the others.
_WORST_FIRST = (
    "unit_loops",
    "unit_failed",
    "unit_down",
    "unit_restarting",
    "unit_missing",
    "engine_dead",
    "server",
    "guard",
    "leftovers",
)
_PARTS = frozenset({Role.CORE, Role.COORDINATOR, Role.WORKER})
_DEAD_SERVER = frozenset({Cause.REFUSED, Cause.TIMEOUT, Cause.HTTP_STATUS})


class Level(StrEnum):
    """The values stand in the JSON output."""

    HEALTHY = "healthy"
    FINDINGS = "findings"
    CANNOT_TELL = "cannot_tell"


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthFinding:
    kind: str  # stands in the JSON output
    subject: str  # a unit, "GPU 3", …
    what: str
    gpus: tuple[str, ...] = ()  # the indexes of those that it is about, where it is about GPUs


@dataclass(frozen=True, slots=True, kw_only=True)
class Unknown:
    """Something unknown, with its cause. If it `matters`, the host cannot be called healthy without it."""

    subject: str
    cause: str
    detail: str
    matters: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Health:
    findings: tuple[HealthFinding, ...]
    unknowns: tuple[Unknown, ...]

    @property
    def is_limited(self) -> bool:
        """Say whether there is more to see for another user: processes, files or the history could not be read."""
        return any(unknown.cause == Cause.NO_PERMISSION or unknown.subject == HISTORY for unknown in self.unknowns)

    @property
    def is_narrowed(self) -> bool:
        """Say whether there is more to see from elsewhere: the host's shared memory is hidden from where we run."""
        return any(unknown.cause == Cause.NO_SHM for unknown in self.unknowns)

    @property
    def level(self) -> Level:
        if self.findings:
            return Level.FINDINGS
        return Level.CANNOT_TELL if any(unknown.matters for unknown in self.unknowns) else Level.HEALTHY


def health_of(view: HostView) -> Health:
    """Judge the host, causes before what follows from them. With a finding, unknowns change nothing."""
    return Health(
        findings=(
            *_driver(view),
            *_gpus(view),
            *_units(view),
            *(HealthFinding(**told._asdict()) for told in left_behind(view)),
        ),
        unknowns=tuple(unknowns_of(view)),
    )


def _driver(view: HostView) -> Iterator[HealthFinding]:
    report = view.snapshot.nvml
    if isinstance(report, Failed) and report.cause in _BROKEN_DRIVER:
        what = f"the driver: {_BROKEN_DRIVER[report.cause]}"
        if report.stuck is not None:
            about = f" about GPU {report.stuck.subject}" if report.stuck.subject else ""
            what = f"the driver hangs in {report.stuck.call}{about}"
        yield HealthFinding(kind="driver", subject="GPUs", what=what)
    elif isinstance(report, Ok) and report.value.driver_mismatch:
        disk = report.value.library_on_disk_version or "of another version"
        what = f"the library on disk is {disk}, the loaded driver {report.value.driver_version}: no program can start"
        yield HealthFinding(kind="driver", subject="GPUs", what=what)


def _gpus(view: HostView) -> Iterator[HealthFinding]:
    if not isinstance(view.snapshot.nvml, Ok):
        return
    report = view.snapshot.nvml.value
    for gpu in report.gpus:
        if gpu.fault is not None:
            yield HealthFinding(kind="gpu", subject=f"GPU {gpu.index}", what=gpu.fault.words, gpus=(gpu.index,))
        elif gpu.fabric_ready is False:
            what = "its NVLink fabric is not ready"
            yield HealthFinding(kind="fabric", subject=f"GPU {gpu.index}", what=what, gpus=(gpu.index,))
    expected = report.listed_most if view.gpus_expected is None else view.gpus_expected
    if report.listed < expected and all(gpu.up for gpu in report.gpus):
        yield HealthFinding(
            kind="gpu", subject="GPUs", what=f"the driver lists {report.listed}, expected are {expected}"
        )


def _units(view: HostView) -> Iterator[HealthFinding]:
    """Yield the findings of units: of each one together, what it comes from before what follows from that."""
    by_unit: dict[str, list[HealthFinding]] = {}
    for finding in _of_units(view):
        by_unit.setdefault(finding.subject, []).append(finding)
    of_unit = [sorted(findings, key=_rank) for findings in by_unit.values()]
    for findings in sorted(of_unit, key=lambda findings: _rank(findings[0])):
        yield from findings


def _rank(finding: HealthFinding) -> int:
    return _WORST_FIRST.index(finding.kind)


def _of_units(view: HostView) -> Iterator[HealthFinding]:
    if not isinstance(view.facts.units, Ok):
        return
    for unit in view.facts.units.value:
        kind, what = unit_trouble(unit, view)
        if what:
            yield HealthFinding(kind=kind, subject=unit.unit.id.name, what=what)
        for told in leftovers_of(unit, view):
            yield HealthFinding(**told._asdict())
    yield from _dead_engines(view)
    runs = view.snapshot.guard_runs
    for run in runs.value if isinstance(runs, Ok) else ():
        if run.verdict is GuardVerdict.FAULT:
            what = "its guard could not work at its last start"
            yield HealthFinding(kind="guard", subject=run.unit.name, what=what)
    yield from _servers(view)


def _dead_engines(view: HostView) -> Iterator[HealthFinding]:
    """Find units that systemd calls active while a part of the same run's engine is a zombie."""
    processes = view.snapshot.processes
    if not isinstance(processes, Ok) or not isinstance(view.facts.units, Ok):
        return
    dead: dict[UnitId, list[Process]] = {}
    for process in processes.value.by_pid.values():
        if process.zombie and process.role in _PARTS and process.placement.unit is not None:
            dead.setdefault(process.placement.unit, []).append(process)
    for unit in view.facts.units.value:
        changed = run_changed_since(unit.unit, processes.value.read_at_monotonic)
        if unit.unit.active_state == "active" and unit.unit.id in dead and not changed:
            parts = ", ".join(f"{process.role} {process.id.pid}" for process in dead[unit.unit.id])
            yield HealthFinding(
                kind="engine_dead", subject=unit.unit.id.name, what=f"parts of its engine are dead: {parts}"
            )


def _servers(view: HostView) -> Iterator[HealthFinding]:
    """Find units whose server does not answer after its time to load.

    An answer without an engine's metrics may be intended (`--disable-log-stats`): that is an unknown, not a finding.
    """
    if not isinstance(view.snapshot.engines, Ok) or not isinstance(view.facts.units, Ok):
        return
    units = {facts.unit.id: facts.unit for facts in view.facts.units.value}
    for answer in view.snapshot.engines.value.answers:
        unit = units.get(answer.unit)
        if unit is not None and _is_dead(answer, unit, view):
            cause = answer.samples.cause.words if isinstance(answer.samples, Failed) else ""
            what = f"its server at {answer.endpoint} does not answer ({cause})"
            yield HealthFinding(kind="server", subject=unit.id.name, what=what)


def _is_dead(answer: EngineAnswer, unit: Unit, view: HostView) -> bool:
    if not isinstance(answer.samples, Failed) or answer.samples.cause not in _DEAD_SERVER:
        return False
    if not is_up(unit) or unit.active_state in {"activating", "deactivating"}:
        return False
    if answer.samples.cause is Cause.REFUSED or unit.active_enter_monotonic is None:
        return True  # of a server that may still load, the source says that it is starting
    readiness = view.history.readiness.get(unit.id)
    return view.snapshot.at_monotonic - unit.active_enter_monotonic > ready_budget_seconds(readiness, view.policy)


def unknowns_of(view: HostView) -> Iterator[Unknown]:
    """Yield what is unknown, with the cause: sources, inputs of a judgement, unreadable processes."""
    snapshot = view.snapshot
    engines_here = isinstance(view.facts.units, Ok) and any(unit.engine for unit in view.facts.units.value)
    for subject, reading in (
        ("GPUs", snapshot.nvml),
        ("units", snapshot.units),
        ("processes", snapshot.processes),
        ("shared memory", snapshot.shm),
        ("engines", snapshot.engines),
        ("the host's clock and memory", snapshot.host),
        ("runs of guards", snapshot.guard_runs),
    ):
        if isinstance(reading, Failed):
            not_missed = subject == "GPUs" and (
                reading.cause is Cause.NO_DEVICE
                or (reading.cause in _NO_GPU_HERE and not engines_here and not view.gpus_expected)
            )
            matters = subject in {"GPUs", "units", "processes"} and not not_missed
            yield Unknown(subject=subject, cause=reading.cause, detail=reading.detail, matters=matters)
        elif isinstance(reading, NotApplicable) and reading is not snapshot.guard_runs:
            yield Unknown(subject=subject, cause=reading.why or "disabled", detail="", matters=False)
    orphans = view.facts.orphans
    if isinstance(orphans, NotApplicable):
        detail = "there are candidates, and no exporter's record tells for how long"
        yield Unknown(subject="orphans", cause="not_watched", detail=detail, matters=True)
    if isinstance(snapshot.processes, Ok) and snapshot.processes.value.unreadable:
        detail = f"processes of which not all could be read: {snapshot.processes.value.unreadable}; root can"
        yield Unknown(subject="processes", cause=Cause.NO_PERMISSION, detail=detail, matters=False)
    if isinstance(snapshot.shm, Ok) and snapshot.shm.value.uninspected:
        detail = (
            f"processes that could not be inspected, and may hold files: {snapshot.shm.value.uninspected}; root can"
        )
        yield Unknown(subject="shared memory", cause=Cause.NO_PERMISSION, detail=detail, matters=False)
    if isinstance(snapshot.shm, Ok) and snapshot.shm.value.unlisted:
        detail = f"{snapshot.shm.value.unlisted} files are more than are looked at"
        yield Unknown(subject="shared memory", cause=Cause.TOO_LARGE, detail=detail, matters=False)
    if view.config_fault:  # what is watched, and expected, may be other than what the config says
        yield Unknown(subject="config", cause="unreadable", detail=view.config_fault, matters=True)
    if view.history_fault:
        yield Unknown(subject=HISTORY, cause="unreadable", detail=view.history_fault, matters=False)
    yield from _unknown_engines(view)


def _unknown_engines(view: HostView) -> Iterator[Unknown]:
    """Yield servers that answer without an engine's metrics; those that do not answer are findings, or loading."""
    if not isinstance(view.snapshot.engines, Ok):
        return
    for answer in view.snapshot.engines.value.answers:
        if isinstance(answer.samples, Failed) and answer.samples.cause not in {*_DEAD_SERVER, Cause.STARTING}:
            subject = f"{answer.unit.name} at {answer.endpoint}"
            yield Unknown(subject=subject, cause=answer.samples.cause, detail=answer.samples.detail, matters=False)
