"""One run of the guard: find the unit, read the files, wait, record."""

import logging
import os
from pathlib import Path
from typing import TYPE_CHECKING

from llmhost.assemble.sources import Sources, guard_config
from llmhost.decide.guard.decision import GuardOptions
from llmhost.decide.guard.state import Finish, GuardState
from llmhost.decide.guard.target import Target, WaitLimit
from llmhost.guard.hidden_unit import hidden_unit
from llmhost.guard.inputs import Files, WrongUseError, read_files
from llmhost.guard.loop import Loop
from llmhost.guard.readings import GuardReadings
from llmhost.guard.request import GuardRequest
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.ids import SYSTEM_MANAGER, UnitId
from llmhost.model.process import Home
from llmhost.sources.sd_notify import Notifier

if TYPE_CHECKING:
    from llmhost.guard.remedies import Remedies

log = logging.getLogger(__name__)


def guarded(request: GuardRequest, sources: Sources, began: float) -> Finish:
    """Wait, and explain the end in the log; `began` is on the monotonic clock. Raises WrongUseError."""
    target = _target(request, sources)
    files = read_files(request, sources, strict=not target.is_own)
    if files.fault and request.refuse_on_fault:
        log.error("%s", files.fault)
        end = Finish(verdict=GuardVerdict.FAULT)
        _record(request.run_directory, target.unit, end, began, sources)
        sources.close()
        return end
    if files.fault:
        log.error("%s: it is done without, by the defaults", files.fault)
    limit = WaitLimit(
        began=began, timeout_seconds=request.timeout_seconds, may_extend=bool(os.environ.get("NOTIFY_SOCKET"))
    )
    remedies = None
    try:
        watched = (target.unit.name,) if target.unit is not None else ()
        sources.configure(guard_config(files.config, watched))
        if watched:
            sources.systemd.start()
        remedies = _remedies(request, target, sources, files)
        readings = GuardReadings(sources, files.config, target, limit, needs_shm=request.need_shm_bytes is not None)
        state = GuardState(
            target=target,
            options=_options(request),
            limit=limit,
            config=files.config,
            history=files.history,
            watched=watched,
        )
        end = Loop(state, readings, Notifier(), remedies).run()
        if end.no_such_unit and target.unit is not None:
            if target.is_own:
                raise LookupError(f"systemd does not know {target.unit.name}, which this runs in")
            raise WrongUseError(f"systemd has no unit {target.unit.name}")
        _record(request.run_directory, target.unit, end, began, sources)
        return end
    finally:
        if remedies is not None:
            remedies.stop()
        sources.close()


def _target(request: GuardRequest, sources: Sources) -> Target:
    """Find out which unit is meant, and whether this runs in it."""
    fault = ""
    try:
        placement = sources.own_placement()
    except OSError as error:
        placement, fault = None, f"/proc/self/cgroup cannot be read: {error.strerror}"
    own = placement.unit if placement is not None and placement.home is Home.SERVICE else None
    if placement is not None and placement.home is Home.NONE:
        own, fault = hidden_unit(sources)
    unit = None
    if request.unit:
        unit = UnitId(request.unit if request.unit.endswith(".service") else f"{request.unit}.service")
    elif own is not None and not request.command:
        if own.manager == SYSTEM_MANAGER:
            unit = own
        else:
            log.warning("%s is a unit of %s, which is not asked for what it needs", own.name, own.manager)
    has_need = request.need_free_bytes is not None or request.need_free_ratio is not None
    return Target(
        unit=unit,
        is_own=unit is not None and unit == own,
        needs_systemd=unit is not None and not (request.gpus and has_need),
        command=request.command,
        environment=tuple(os.environ.items()),
        fault="" if request.unit or request.command or request.gpus else fault,
    )


def _options(request: GuardRequest) -> GuardOptions:
    return GuardOptions(
        gpus=request.gpus,
        free_bytes=request.need_free_bytes,
        free_ratio=request.need_free_ratio,
        max_used_bytes=request.max_used_bytes,
        shm_bytes=request.need_shm_bytes,
        settle_seconds=request.settle_seconds,
    )


def _remedies(request: GuardRequest, target: Target, sources: Sources, files: Files) -> "Remedies | None":
    """Start --reap and --clean-shm. What goes wrong with that keeps the guard from nothing."""
    if not (request.reap or request.clean_shm):
        return None
    if target.unit is None or not target.is_own:
        log.warning("--reap and --clean-shm do nothing: this runs in no service's start, which alone is proof enough")
        return None
    try:
        from llmhost.guard.remedies import Remedies  # takes time, and is seldom asked for

        return Remedies(
            target.unit,
            reap=request.reap,
            clean_shm=request.clean_shm,
            sources=sources,
            config=files.config,
            recorded=files.history,
        )
    except Exception:  # it is the remedies' alone
        log.exception("--reap and --clean-shm do nothing: this is a bug in llmhost")
        return None


def _record(run_directory: Path, unit: UnitId | None, end: Finish, began: float, sources: Sources) -> None:
    if unit is None:
        return
    from llmhost.state.directory import StoreError  # takes time, and a verdict does not need it
    from llmhost.state.guard_record import record

    at, seconds = sources.clock.time(), sources.clock.monotonic() - began
    try:
        record(run_directory, unit, end.verdict, at=at, wait_seconds=seconds)
    except StoreError as error:
        log.warning("this run is not recorded: %s", error)
    except Exception:  # what was found about the GPUs stands
        log.exception("this run is not recorded: this is a bug in llmhost")
