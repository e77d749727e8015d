"""One run of the guard: which unit, by when, wait, tell, record."""

import logging
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING

from llmhost.assemble.guard_sources import Gpus, Surroundings
from llmhost.collect.clock import SystemClock
from llmhost.decide.guard.decision import Wanted
from llmhost.guard.inputs import Told, WrongUseError, read_told
from llmhost.guard.request import GuardRequest
from llmhost.guard.target import Patience, Target
from llmhost.guard.wait import Wait
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.ids import SYSTEM_MANAGER, UnitId
from llmhost.model.process import Home
from llmhost.model.reading import Ok
from llmhost.model.unit import Unit, UnitSettings
from llmhost.sources.sd_notify import Notifier

if TYPE_CHECKING:
    from llmhost.guard.remedies import Remedies

log = logging.getLogger(__name__)

_PROCFS = Path("/proc")
_SHM = Path("/dev/shm")  # noqa: S108 - the tmpfs that is looked at
_STOPPING_SECONDS = 0.3  # for systemd to say that it is it that ends us
_WAITS = frozenset({"condition", "start-pre"})  # sub-states in which a start goes on when we exit with 0


class TerminatedError(BaseException):
    """SIGTERM came. It is raised wherever the wait happens to be: no Exception, which logging keeps to itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    verdict: GuardVerdict
    terminated: bool = False
    unit_is_stopping: bool = False  # systemd ends the unit: no start goes on whatever we exit with


def guarded(given: GuardRequest, gpus: Gpus, began: float) -> Ended:
    """Wait, and tell why in the log; `began` is when, on the monotonic clock. Raises WrongUseError."""
    clock = SystemClock()
    name, own, fault = _unit_name(given, gpus)
    told = read_told(given, _PROCFS, needed=not own)
    if told.fault and given.refuse_on_fault:
        log.error("%s", told.fault)
        ended = Ended(verdict=GuardVerdict.FAULT)
        _record(given.run_directory, name, ended, began, clock)
        gpus.close()
        return ended
    if told.fault:
        log.error("%s: it is done without, by the defaults", told.fault)
    target = Target(
        unit=UnitId(name) if name else None,
        is_own=own,
        stand_in=_stand_in(given),
        needs_systemd=bool(name) and not (given.gpus and (given.need_free_bytes or given.need_free_ratio) is not None),
        fault=fault,
    )
    surroundings = Surroundings(gpus.sources, told.config, (name,) if name else ())
    remedies = _remedies(given, name if own else "", surroundings, told, clock)
    wait = Wait(
        target=target,
        wanted=_wanted(given),
        patience=Patience(
            began=began,
            timeout_seconds=given.timeout_seconds,
            may_extend=bool(os.environ.get("NOTIFY_SOCKET")),
            control_began=lambda pid: clock.monotonic() - gpus.sources.process_age_seconds(pid),
        ),
        gpus=gpus,
        surroundings=surroundings,
        config=told.config,
        history=told.history,
        notifier=Notifier(),
        remedies=remedies,
        clock=clock,
    )
    try:
        try:
            with _terminable():
                verdict = wait.until_told()
            ended = Ended(verdict=verdict)
        except TerminatedError:
            wait.tell_terminated()
            ended = Ended(
                verdict=wait.verdict_so_far,
                terminated=True,
                unit_is_stopping=own and _is_stopping(surroundings, UnitId(name), clock),
            )
        if wait.no_such_unit and own:
            raise LookupError(f"systemd does not know {name}, which this runs in")
        if wait.no_such_unit:
            raise WrongUseError(f"systemd has no unit {name}")
        _record(given.run_directory, name, ended, began, clock)
        return ended
    finally:
        if remedies is not None:
            remedies.stop()
        gpus.close()


def _remedies(
    given: GuardRequest, own: str, surroundings: Surroundings, told: Told, clock: SystemClock
) -> "Remedies | None":
    """Start what --reap and --clean-shm ask for. What goes wrong with that keeps the guard from nothing."""
    if not (given.reap or given.clean_shm):
        return None
    if not own:
        log.warning("--reap and --clean-shm do nothing: this runs in no service's start, which alone is proof enough")
        return None
    try:
        from llmhost.guard.remedies import Remedies  # noqa: PLC0415 - takes time, and is seldom asked for

        return Remedies(
            UnitId(own),
            reap=given.reap,
            clean_shm=given.clean_shm,
            surroundings=surroundings,
            config=told.config,
            recorded=told.history,
            procfs=_PROCFS,
            shm=_SHM,
            clock=clock,
        )
    except Exception:  # it is the remedies' alone
        log.exception("--reap and --clean-shm do nothing: this is a bug in llmhost")
        return None


def _unit_name(given: GuardRequest, gpus: Gpus) -> tuple[str, bool, str]:
    """Find the unit's name, whether this runs in it, and why that cannot be told."""
    try:
        placement = gpus.sources.own_placement()
    except OSError as error:
        placement, fault = None, f"/proc/self/cgroup cannot be read: {error.strerror}"
    else:
        fault = ""
    mine = placement.unit if placement is not None and placement.home is Home.SERVICE else None
    if given.unit:
        name = given.unit if given.unit.endswith(".service") else f"{given.unit}.service"
        return name, mine == UnitId(name), ""
    if mine is None or given.command:
        return "", False, "" if given.command or given.gpus else fault
    if mine.manager != SYSTEM_MANAGER:
        log.warning("%s is a unit of %s, which is not asked for what it needs", mine.name, mine.manager)
        return "", False, ""
    return mine.name, True, ""


def _stand_in(given: GuardRequest) -> Unit:
    """Describe what is started where that is no unit: the command, with our environment."""
    return Unit(
        id=UnitId(""),
        load_state="",
        unit_file_state="",
        active_state="inactive",
        sub_state="dead",
        settings=UnitSettings(
            exec_start=(given.command,) if given.command else (), environment=tuple(os.environ.items())
        ),
    )


def _wanted(given: GuardRequest) -> Wanted:
    return Wanted(
        gpus=given.gpus,
        free_bytes=given.need_free_bytes,
        free_ratio=given.need_free_ratio,
        max_used_bytes=given.max_used_bytes,
        shm_bytes=given.need_shm_bytes,
        settle_seconds=given.settle_seconds,
    )


@contextmanager
def _terminable() -> Iterator[None]:
    """Have SIGTERM end the wait at once. Afterwards it ends this process, which then admits nothing either."""

    def terminate(_number: int, _frame: FrameType | None) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        raise TerminatedError

    signal.signal(signal.SIGTERM, terminate)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _is_stopping(surroundings: Surroundings, unit: UnitId, clock: SystemClock) -> bool:
    """Whether systemd stops our unit: then nothing starts if we exit with 0, and the unit has not failed if we do."""
    until = clock.monotonic() + _STOPPING_SECONDS
    while clock.monotonic() < until:
        report = surroundings.units.answer(surroundings.units.ask(until), until)
        if isinstance(report, Ok):
            found = next((one for one in report.value.units if one.id == unit), None)
            if found is not None and found.sub_state not in _WAITS:
                return True
        time.sleep(0.01)
    return False


def _record(run_directory: Path, name: str, ended: Ended, began: float, clock: SystemClock) -> None:
    if not name:
        return
    from llmhost.state.directory import StoreError  # noqa: PLC0415 - takes time, and a verdict does not need it
    from llmhost.state.guard_record import record  # noqa: PLC0415

    at, seconds = clock.time(), clock.monotonic() - began
    try:
        record(run_directory, UnitId(name), ended.verdict, at=at, wait_seconds=seconds)
    except StoreError as error:
        log.warning("this run is not recorded: %s", error)
    except Exception:  # what was found about the GPUs stands
        log.exception("this run is not recorded: this is a bug in llmhost")
