"""Steps of the guard's state machine: what it begins with, what comes, and what it does then.

The guard began at 0.0. It waits for GPU 0 of 80 GiB, 1 GiB of it reserved, of which 40 GiB must be free.
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

from tests.fakes.values import GIB, HOST, gpu, held, memory, process, report, table, unit

from llmhost.config.schema import Config
from llmhost.decide.guard.decision import GuardOptions
from llmhost.decide.guard.machine import step
from llmhost.decide.guard.state import (
    Action,
    Admit,
    Ask,
    Configure,
    Extend,
    Finish,
    GuardState,
    Inform,
    Inputs,
    Say,
    Watch,
)
from llmhost.decide.guard.target import Target, WaitLimit
from llmhost.model.gpu import NvmlReport
from llmhost.model.history.history import History
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import Unit, UnitSettings, UnitsReport
from llmhost.views.guard.lines import log_line

Row: TypeAlias = tuple[float, Mapping[str, Any], str]

PID = 7  # the guard's

NOTHING: Mapping[str, Any] = {}
FAILS: Reading[Any] = Failed(Cause.NO_BUS, "no socket")


def used(gib: float, **given: Any) -> Reading[NvmlReport]:  # noqa: ANN401
    """Report the one GPU with this much of its memory in use."""
    return Ok(report([gpu(0, **{"memory": memory(int(gib * GIB)), "holders": NotApplicable(), **given})]))


FREE, HELD = {"memory": used(39)}, {"memory": used(70)}
NO_DRIVER = {"memory": Failed(Cause.NO_DRIVER)}
MISMATCH = {"memory": Failed(Cause.DRIVER_MISMATCH)}
LISTS = {"lists": used(70, holders=Ok((held(50, 69 * GIB),)))}
PROCESSES = {"processes": Ok(table([process(50, comm="python3")]))}


def units(*units: Unit) -> Mapping[str, Any]:
    return {"units": Ok(UnitsReport(systemd_version="252", units=units))}


HOST_READ: Mapping[str, Any] = {"host": Ok(HOST)}
KNOWN = {**HOST_READ, **units()}
FIRST_ACTIONS = "extend, ask HOST, ask UNITS"


def state(
    target: Target | None = None,
    *,
    timeout: float = 10.0,
    may_notify: bool = False,
    **options: Any,  # noqa: ANN401
) -> GuardState:
    """Give the state that a run begins with."""
    given: dict[str, Any] = {"gpus": ("0",), "free_bytes": 40 * GIB, "settle_seconds": 0.0}
    target = target or Target(unit=None, needs_systemd=False)
    return GuardState(
        target=target,
        options=GuardOptions(**(given | options)),
        limit=WaitLimit(began=0.0, timeout_seconds=timeout, may_notify=may_notify, pid=PID),
        config=Config(),
        history=History(),
        watched=(target.unit.name,) if target.unit is not None else (),
    )


SERVICE = Target(unit=UnitId("vllm.service"), needs_systemd=True)
OWN = replace(SERVICE, is_own=True, environment=(("CUDA_VISIBLE_DEVICES", "0"),))


def starting(sub_state: str = "start-pre", timeout: float | None = 30.0, **given: Any) -> Mapping[str, Any]:  # noqa: ANN401
    settings = UnitSettings(exec_start=(("/opt/vllm", "serve", "m"),), start_timeout_seconds=timeout)
    return units(unit("vllm.service", "activating", sub_state, **{"settings": settings, "control_pid": PID, **given}))


def by_systemd(margin: float, limit: int) -> str:
    return f"{margin:g} s before TimeoutStartSec={limit}s would end it; NotifyAccess=exec lets the guard extend it"


def shown(actions: Iterable[Action]) -> str:
    """Show actions, without the note to other guards before a start is let on (test_admissions.py)."""
    return ", ".join(_shown(action) for action in actions if not isinstance(action, Admit))


def _shown(action: Action) -> str:
    match action:
        case Ask(query):
            return f"ask {query.name}"
        case Watch(names):
            return f"watch {' '.join(names)}"
        case Configure():
            return "configure"
        case Extend(seconds):
            return "extend" if seconds == 10.0 else f"extend by {seconds} s"
        case Admit():
            return "admit"
        case Inform():
            return "inform"
        case Say():
            return f"say {action.topic.name}" + (f" ({action.why})" if action.why else "")
        case Finish():
            flags = ("no_such_unit", "terminated", "unit_is_stopping")
            return " ".join(("end", action.verdict, *(flag for flag in flags if getattr(action, flag))))


def lines_of(begin: GuardState, rows: Iterable[Row]) -> list[str]:
    """Give all lines of a wait, without times of day."""
    reached, found = begin, list[str]()
    for now, inputs, _ in rows:
        reached, actions = step(reached, Inputs(at=1e9 + now, **inputs), now)
        found += [log_line(action, reached.target) for action in actions if isinstance(action, Say)]
    return [re.sub(", since [0-9:]+", ", since T", line) for line in found]


def played(begin: GuardState, rows: Iterable[Row]) -> GuardState:
    """Step through a table, and compare each step's actions."""
    reached = begin
    for now, inputs, expected in rows:
        reached, actions = step(reached, Inputs(at=1e9 + now, **inputs), now)
        assert shown(actions) == expected, f"at {now}"
    return reached
