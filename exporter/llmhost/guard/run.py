"""One run of the guard: find the unit, wait, record."""

import logging
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from llmhost.assemble.sources import Sources, guard_config
from llmhost.config.schema import Config
from llmhost.decide.guard.decision import GuardOptions
from llmhost.decide.guard.state import File, Finish, GuardState
from llmhost.decide.guard.target import DEFAULT_START_SECONDS, Target, WaitLimit
from llmhost.decide.guard.trouble import SURE_SECONDS
from llmhost.guard.admitting import Admitting
from llmhost.guard.ending_signals import ENDING_SIGNALS, is_systemds_own_process
from llmhost.guard.hidden_unit import hidden_unit
from llmhost.guard.inputs import Files, WrongUseError
from llmhost.guard.loop import Loop
from llmhost.guard.readings import GuardReadings
from llmhost.guard.request import GuardRequest
from llmhost.model.history.history import History
from llmhost.model.ids import SYSTEM_MANAGER, UnitId
from llmhost.model.process import Home, Placement
from llmhost.model.unit import Unit
from llmhost.runtime.bounded_call import BoundedCall
from llmhost.sources.sd_notify import Notifier
from llmhost.state.directory import StoreError
from llmhost.state.guard_record import record

if TYPE_CHECKING:
    from llmhost.guard.remedies import Remedies

log = logging.getLogger(__name__)

_AGAIN_SECONDS = 0.1  # between two tries to read what is there as a rule
_RECORD_SECONDS = 1.0
_SYSTEMD = Path("/run/systemd/system")  # it is there where systemd runs (sd_booted(3))
_CLOSE_SECONDS = 0.2  # the last line is written, and systemd may be about to end this


def guarded(request: GuardRequest, sources: Sources, began: float) -> tuple[Finish, Unit | None]:
    """Wait, and explain the end in the log; `began` is on the monotonic clock. Raises WrongUseError.

    Give the end, and the unit that this runs in as systemd last told of it.
    """
    remedies = None
    try:
        target, limit = _target(request, sources, began)
        files = Files(request, sources, strict=not (target.is_own or is_systemds_own_process()))
        watched = (target.unit.name,) if target.unit is not None else ()
        sources.configure(guard_config(Config(), watched))
        if watched:
            sources.systemd.start()
        remedies = _remedies(request, target, sources)
        readings = GuardReadings(sources, files, target, needs_shm=request.need_shm_bytes is not None)
        state = GuardState(
            target=target,
            options=_options(request),
            limit=limit,
            refuses_on_fault=request.refuse_on_fault,
            watched=watched,
            config=Config(),
            history=History(),
            unread=frozenset(File),
        )
        admitting = Admitting(request, target, sources)
        loop = Loop(state, readings, Notifier(), remedies, signals=ENDING_SIGNALS, admitting=admitting)
        end = loop.run()
        if end.no_such_unit and target.unit is not None:
            raise WrongUseError(f"systemd has no unit {target.unit.name}")
        unit = loop.unit
        _record(request.run_directory, unit.id if unit is not None else target.unit, end, began, sources)
        is_own = target.is_own or (unit is not None and unit.id == target.runs_in and not target.command)
        return end, unit if is_own else None
    finally:
        if remedies is not None:
            remedies.stop()
        sources.close(_CLOSE_SECONDS)


def _target(request: GuardRequest, sources: Sources, began: float) -> tuple[Target, WaitLimit]:
    """Find out which unit is meant, whether this runs in it, and how long it may wait. Raises WrongUseError."""
    fault = ""
    try:
        placement = _own_placement(sources)
    except OSError as error:
        placement, fault = None, f"/proc/self/cgroup cannot be read: {error.strerror}"
    own = placement.unit if placement is not None and placement.home is Home.SERVICE else None
    if placement is not None and placement.home is Home.NONE:
        own, fault = hidden_unit(sources)
    if own is None and not fault:
        _require_a_name(request)
    unit, start_seconds = None, None
    may_notify = bool(os.environ.get("NOTIFY_SOCKET"))
    if request.unit:
        unit = UnitId(request.unit if request.unit.endswith(".service") else f"{request.unit}.service")
    elif own is not None and not request.command:
        if own.manager == SYSTEM_MANAGER:
            unit = own
        else:
            log.warning("%s is a unit of %s, which is not asked for what it needs", own.name, own.manager)
            start_seconds = None if may_notify and is_systemds_own_process() else DEFAULT_START_SECONDS
    has_need = request.need_free_bytes is not None or request.need_free_ratio is not None
    limit = WaitLimit(
        began=began,
        timeout_seconds=request.timeout_seconds,
        may_notify=may_notify,
        pid=os.getpid(),
        start_seconds=start_seconds,
    )
    target = Target(
        unit=unit,
        is_own=unit is not None and unit == own,
        needs_systemd=unit is not None and not (request.gpus and has_need),
        command=request.command,
        runs_in=own if own is not None and own.manager == SYSTEM_MANAGER else None,
        environment=request.environment,
        fault="" if request.unit or request.command or request.gpus else fault,
    )
    return target, limit


def _require_a_name(request: GuardRequest) -> None:
    """Refuse to wait for all GPUs for the sake of no start: somebody has typed this. Raises WrongUseError.

    What systemd has started is no such thing, wherever it has got to since (PAMName=, su).
    """
    if request.unit or request.gpus or request.command or "INVOCATION_ID" in os.environ:
        return
    if not _SYSTEMD.exists():
        raise WrongUseError(
            "this is in no service, and there is no systemd here: give --gpus LIST, or the command to start: -- COMMAND"
        )
    raise WrongUseError(
        "this is in no service: name it with --unit UNIT, or put the guard before it with --install UNIT; to wait for "
        "none, give --gpus LIST, or the command to start: -- COMMAND"
    )


def _own_placement(sources: Sources) -> Placement:
    """Find the unit that this runs in; what fails is tried again for a while. Raises OSError."""
    until = time.monotonic() + SURE_SECONDS
    while True:
        try:
            return sources.own_placement()
        except OSError:
            if time.monotonic() >= until:
                raise
            time.sleep(_AGAIN_SECONDS)


def _options(request: GuardRequest) -> GuardOptions:
    return GuardOptions(
        gpus=request.gpus,
        free_bytes=request.need_free_bytes,
        free_ratio=request.need_free_ratio,
        max_used_bytes=request.max_used_bytes,
        shm_bytes=request.need_shm_bytes,
        settle_seconds=request.settle_seconds,
    )


def _remedies(request: GuardRequest, target: Target, sources: Sources) -> "Remedies | None":
    """Start --reap and --clean-shm. What goes wrong with that keeps the guard from nothing."""
    if not (request.reap or request.clean_shm):
        return None
    if target.unit is None or not target.is_own:
        log.warning("--reap and --clean-shm do nothing: this runs in no service's start, which alone is proof enough")
        return None
    try:
        from llmhost.guard.remedies import Remedies  # takes time, and is seldom asked for

        return Remedies(target.unit, reap=request.reap, clean_shm=request.clean_shm, sources=sources)
    except Exception:  # it is the remedies' alone
        log.exception("--reap and --clean-shm do nothing: this is a bug in llmhost")
        return None


def _record(run_directory: Path, unit: UnitId | None, end: Finish, began: float, sources: Sources) -> None:
    if unit is None:
        return
    at, seconds = sources.clock.time(), sources.clock.monotonic() - began
    recording = BoundedCall(
        lambda: record(run_directory, unit, end.verdict, at=at, wait_seconds=seconds), name="llmhost-record"
    )
    try:
        recording.result(time.monotonic() + _RECORD_SECONDS)
    except TimeoutError:
        log.warning("this run is not recorded: %s does not answer", run_directory)
    except StoreError as error:
        log.warning("this run is not recorded: %s", error)
    except Exception:  # what was found about the GPUs stands
        log.exception("this run is not recorded: this is a bug in llmhost")
