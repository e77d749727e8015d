"""The guard's state machine: tables of what comes at which time, and what the guard does then.

The guard began at 0.0. It waits for GPU 0 of 80 GiB, 1 GiB of it reserved, of which 40 GiB must be free.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, TypeAlias

import pytest
from tests.fakes.values import GIB, HOST, gpu, held, in_service, memory, process, report, table, unit

from llmhost.config.schema import Config
from llmhost.decide.guard.decision import GuardOptions
from llmhost.decide.guard.machine import step
from llmhost.decide.guard.state import (
    Action,
    Ask,
    End,
    Extend,
    GuardState,
    Inform,
    Inputs,
    RemedyProgress,
    Watch,
)
from llmhost.decide.guard.status import Say, Topic
from llmhost.decide.guard.target import Target, WaitLimit
from llmhost.model.gpu import NvmlReport
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.history.history import History
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok, Reading
from llmhost.model.unit import Unit, UnitSettings, UnitsReport

Row: TypeAlias = tuple[float, Mapping[str, Any], str]

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
ASKED = "extend, ask HOST, ask UNITS"


def state(
    target: Target | None = None,
    *,
    timeout: float = 10.0,
    may_extend: bool = False,
    **options: Any,  # noqa: ANN401
) -> GuardState:
    """Give the state that a run begins with."""
    given: dict[str, Any] = {"gpus": ("0",), "free_bytes": 40 * GIB, "settle_seconds": 0.0}
    target = target or Target(unit=None, needs_systemd=False)
    return GuardState(
        target=target,
        options=GuardOptions(**(given | options)),
        limit=WaitLimit(began=0.0, timeout_seconds=timeout, may_extend=may_extend),
        config=Config(),
        history=History(),
        watched=(target.unit.name,) if target.unit is not None else (),
    )


SERVICE = Target(unit=UnitId("vllm.service"), needs_systemd=True)
OWN = replace(SERVICE, is_own=True, environment=(("CUDA_VISIBLE_DEVICES", "0"),))


def starting(sub_state: str = "start-pre", timeout: float | None = 30.0, **given: Any) -> Mapping[str, Any]:  # noqa: ANN401
    settings = UnitSettings(exec_start=(("/opt/vllm", "serve", "m"),), start_timeout_seconds=timeout)
    return units(unit("vllm.service", "activating", sub_state, **{"settings": settings, **given}))


def by_systemd(margin: float, limit: int) -> str:
    return f"{margin:g} s before TimeoutStartSec={limit}s would end it; NotifyAccess=exec lets the guard extend it"


def shown(actions: Iterable[Action]) -> str:
    return ", ".join(_shown(action) for action in actions)


def _shown(action: Action) -> str:
    match action:
        case Ask(query):
            return f"ask {query.name}"
        case Watch(names):
            return f"watch {' '.join(names)}"
        case Extend():
            return "extend"
        case Inform():
            return "inform"
        case Say():
            return f"say {action.topic.name}" + (f" ({action.why})" if action.why else "")
        case End():
            flags = ("no_such_unit", "terminated", "unit_is_stopping")
            return " ".join(("end", action.verdict, *(flag for flag in flags if getattr(action, flag))))


def played(begin: GuardState, rows: Iterable[Row]) -> GuardState:
    """Step through a table, and compare each step's actions."""
    reached = begin
    for now, inputs, expected in rows:
        reached, actions = step(reached, Inputs(at=1e9 + now, **inputs), now)
        assert shown(actions) == expected, f"at {now}"
    return reached


UNIFIED = {"memory": used(0, memory=NotApplicable(), unified_memory=True)}
BUSY = {"remedies": RemedyProgress()}
ENDING = {"remedies": RemedyProgress(acting_since=0.5)}
SETTLED = {"remedies": RemedyProgress(settled=True)}
STUCK = {"remedies": RemedyProgress(settled=True, stuck=(process(50),))}
NEIGHBOUR = {"processes": Ok(table([process(50, in_service("vllm-b.service"), comm="python3")]))}

# By what happens: the state at the beginning, and what comes when, with the actions that follow.
TABLES: Mapping[str, tuple[GuardState, tuple[Row, ...]]] = {
    "free at once": (
        state(),
        (
            (0.1, NOTHING, ASKED),
            (0.2, {**KNOWN, **FREE}, "say FREE, end free"),
        ),
    ),
    "free by memory alone, whatever systemd does": (
        state(),
        (
            (0.1, FREE, ASKED),
            (0.2, HOST_READ, "say FREE, end free"),
        ),
    ),
    "held to the end, with the holder's name": (
        state(timeout=6.0),
        (
            (0.1, HELD, ASKED),
            (0.2, {**KNOWN, **HELD}, "ask LISTS"),  # no line yet: the name comes in a moment
            (0.3, {**LISTS, **HELD}, "ask PROCESSES"),
            (0.4, {**PROCESSES, **HELD}, "say WAITS"),
            (0.5, HELD, ""),
            (1.2, HELD, "extend, ask UNITS"),
            (5.2, {**HELD, **KNOWN}, "extend"),
            (5.4, HELD, "say WAITS, ask LISTS"),  # each 5 s after the first
            (5.9, HELD, ""),
            (6.0, HELD, "say GIVES_UP (--timeout), end held"),
        ),
    ),
    "without any time, the name is waited for, but not for long": (
        state(timeout=0.0),
        (
            (0.1, {**KNOWN, **HELD}, "ask LISTS"),
            (0.9, HELD, ""),
            (1.0, HELD, "say GIVES_UP (--timeout), end held"),
        ),
    ),
    "without any time, with the name": (
        state(timeout=0.0),
        (
            (0.1, {**KNOWN, **HELD}, "ask LISTS"),
            (0.2, {**LISTS, **HELD}, "ask PROCESSES"),
            (0.3, {**PROCESSES, **HELD}, "say GIVES_UP (--timeout), end held"),
        ),
    ),
    "held, then free": (
        state(),
        (
            (0.1, {**KNOWN, **HELD}, "extend, ask LISTS"),
            (0.2, {**LISTS, **HELD}, "ask PROCESSES"),
            (0.3, FREE, "say FREE, end free"),
        ),
    ),
    "memory settles for a second, and again after it has moved": (
        state(settle_seconds=1.0),
        (
            (0.1, {**KNOWN, "memory": used(10)}, "extend, ask LISTS"),
            (1.0, {"memory": used(10)}, ""),
            (1.05, {"memory": used(11)}, ""),
            (1.2, {"memory": used(11)}, "extend, ask UNITS"),
            (2.0, {"memory": used(11)}, "say WAITS"),  # 2 s are more than the second and the usual moment
            (2.1, {"memory": used(11)}, "say FREE, end free"),
        ),
    ),
    "a driver that is loaded late": (
        state(),
        (
            (0.1, {**KNOWN, **NO_DRIVER}, "extend, say WAITS"),
            (0.2, NO_DRIVER, ""),
            (2.0, FREE, "extend, say FREE, end free"),
        ),
    ),
    "a driver that never comes": (
        state(timeout=1.5),
        (
            (0.1, {**KNOWN, **NO_DRIVER}, "extend, say WAITS"),
            (1.5, NO_DRIVER, "say GIVES_UP (--timeout), end unknown"),
        ),
    ),
    "a driver that hangs after it has answered": (
        state(timeout=3.0),
        (
            (0.1, {**KNOWN, **HELD}, "extend, ask LISTS"),
            (0.2, NOTHING, ""),
            (1.1, NOTHING, "extend, say WAITS, ask UNITS"),  # by the last reading
            (1.7, {"memory": Failed(Cause.TIMEOUT)}, ""),  # it is late; a second must pass between two lines
            (2.1, {"memory": Failed(Cause.TIMEOUT)}, "extend, say WAITS"),
            (3.0, {"memory": Failed(Cause.TIMEOUT)}, "say GIVES_UP (--timeout), end unknown"),
        ),
    ),
    "a driver that has not answered at all": (
        state(timeout=1.0),
        (
            (0.1, KNOWN, "extend"),
            (1.0, NOTHING, ""),  # first answers have 4 s, whatever the limit
            (3.9, NOTHING, "ask UNITS"),
            (4.0, NOTHING, "say GIVES_UP (--timeout), end unknown"),
        ),
    ),
    "no use to wait": (
        state(),
        (
            (0.1, {**KNOWN, **MISMATCH}, "extend, say WAITS"),
            (2.0, MISMATCH, "extend, ask UNITS"),
            (2.1, NO_DRIVER, "say WAITS"),  # that may pass, and the time counts anew
            (2.2, MISMATCH, ""),
            (5.1, MISMATCH, "extend, say WAITS"),
            (5.2, MISMATCH, "say GIVES_UP (no waiting mends that), end unknown"),
        ),
    ),
    "lists: at once, after 5 s, and a second after memory has moved": (
        state(timeout=100.0),
        (
            (0.1, {**KNOWN, **HELD}, "extend, ask LISTS"),
            (0.2, {**HELD, "lists": Failed(Cause.TIMEOUT)}, "ask PROCESSES"),
            (0.3, {**HELD, **PROCESSES}, ""),  # no name from that, and there may be one soon
            (1.2, HELD, "extend, say WAITS, ask UNITS"),
            (1.3, HELD, "ask LISTS"),  # a second later, as none was read
            (1.4, {**HELD, **LISTS}, "ask PROCESSES"),
            (1.5, {**HELD, **PROCESSES}, ""),
            (2.4, HELD, "extend, say WAITS"),  # by name
            (2.5, {"memory": used(70.01)}, ""),  # 10 MiB are no move
            (2.6, {"memory": used(69)}, "ask LISTS"),
            (2.7, {"memory": used(69), **LISTS}, "ask PROCESSES"),
        ),
    ),
    "a fabric is asked about each second": (
        state(timeout=100.0),
        (
            (0.1, {**KNOWN, "memory": used(10, fabric_ready=False)}, "extend, ask LISTS"),
            (0.2, {"memory": used(10, fabric_ready=False), **LISTS}, "ask PROCESSES"),
            (0.3, {"memory": used(10, fabric_ready=False), **PROCESSES}, "say WAITS"),
            (1.3, {"memory": used(10, fabric_ready=False)}, "extend, ask UNITS, ask LISTS"),
        ),
    ),
    "a holder's unit is watched, and named once systemd has reported it": (
        state(SERVICE, timeout=100.0),
        (
            (0.1, {**HOST_READ, **starting(), **HELD}, "extend, ask LISTS"),
            (0.2, {**HELD, **LISTS}, "ask PROCESSES"),
            (0.3, {**HELD, **NEIGHBOUR}, "watch vllm.service vllm-b.service, ask UNITS"),
            (0.4, HELD, ""),
            (0.5, {**HELD, **starting()}, "say WAITS"),
        ),
    ),
    "the host's memory is read again where GPUs share it": (
        state(timeout=100.0, free_bytes=101 * GIB),  # of the host's 128, 100 are available
        (
            (0.1, {**KNOWN, **UNIFIED}, "extend, ask HOST, ask LISTS"),
            (0.2, UNIFIED, ""),
            (0.3, {"host": Ok(replace(HOST, memory_available_bytes=101 * GIB))}, "say FREE, end free"),
        ),
    ),
    "shared memory": (
        state(shm_bytes=16 * GIB, timeout=100.0),
        (
            (0.1, {**KNOWN, **FREE, "shm_free_bytes": 1 * GIB}, "extend, say WAITS, ask LISTS"),
            (0.2, {**FREE, "shm_free_bytes": None}, ""),
            (1.1, {**FREE, "shm_free_bytes": None}, "extend, say WAITS, ask UNITS"),
            (1.2, {**FREE, "shm_free_bytes": 16 * GIB}, "say FREE, end free"),
        ),
    ),
    "a unit that systemd knows": (
        state(SERVICE),
        (
            (0.1, FREE, ASKED),
            (0.2, {**FREE, **HOST_READ}, ""),
            (0.3, {**FREE, **starting()}, "say FREE, end free"),
        ),
    ),
    "a unit that systemd does not know": (
        state(SERVICE),
        (
            (0.1, FREE, ASKED),
            (0.2, {**FREE, **units(unit("vllm-b.service"))}, "end fault no_such_unit"),
        ),
    ),
    "a unit whose files are gone": (
        state(SERVICE),
        ((0.1, {**FREE, **units(unit("vllm.service", load_state="not-found"))}, "extend, end fault no_such_unit"),),
    ),
    "a unit that systemd has not loaded": (
        state(SERVICE),
        (
            (
                0.1,
                {**HELD, **HOST_READ, **starting(load_state="stub")},
                "extend, say NOT_LOADED (vllm.service), ask LISTS",
            ),
            (0.2, HELD, ""),  # told once
            (0.3, FREE, "say FREE, end free"),
        ),
    ),
    "no systemd for 3 s on end": (
        state(SERVICE),
        (
            (0.1, {**FREE, **HOST_READ, "units": FAILS}, "extend, ask UNITS"),
            (3.0, {**FREE, "units": FAILS}, "extend, ask UNITS"),
            (3.1, FREE, "say NEED_UNKNOWN (systemd cannot be asked: no bus (no socket)), end fault"),
        ),
    ),
    "a systemd that comes in time": (
        state(SERVICE),
        (
            (0.1, {**FREE, **HOST_READ, "units": FAILS}, "extend, ask UNITS"),
            (3.0, {**FREE, **starting()}, "extend, say FREE, end free"),
        ),
    ),
    "a systemd that reloads keeps its last word": (
        state(SERVICE, timeout=100.0),
        (
            (0.1, {**HELD, **HOST_READ, **starting()}, "extend, ask LISTS"),
            (1.1, HELD, "extend, say WAITS, ask UNITS"),
            (4.0, {**HELD, "units": FAILS}, "extend"),
            (5.0, HELD, "extend, ask UNITS"),
            (9.0, {**FREE, "units": FAILS}, "extend, say FREE, end free"),
        ),
    ),
    "no systemd where the options say enough": (
        state(replace(SERVICE, needs_systemd=False)),
        (
            (0.1, {**HELD, **HOST_READ, "units": FAILS}, "extend, ask UNITS, ask LISTS"),
            (5.0, {**HELD, "units": FAILS}, "extend, say WAITS, ask UNITS"),
            (5.1, FREE, "say FREE, end free"),
        ),
    ),
    "nobody can say which unit this is": (
        state(Target(unit=None, needs_systemd=False, fault="/proc/self/cgroup cannot be read: gone")),
        (
            (
                0.1,
                FREE,
                "extend, say NEED_UNKNOWN (/proc/self/cgroup cannot be read: gone), end fault",
            ),
        ),
    ),
    "a start that systemd would end after 30 s": (  # less a tenth of it, from the start of its command at -2.0
        state(OWN, timeout=150.0),
        (
            (0.1, {**HELD, **HOST_READ, **starting(), "command_began": -2.0}, "extend, ask LISTS"),
            (24.9, HELD, "extend, say WAITS, ask UNITS"),
            (
                25.0,
                HELD,
                f"say GIVES_UP ({by_systemd(3, 30)}), end held",
            ),
        ),
    ),
    "a start of 5 s, whose command began later than the guard": (
        state(OWN, timeout=150.0),
        (
            (0.1, {**HELD, **HOST_READ, **starting(timeout=5.0), "command_began": 3.0}, "extend, ask LISTS"),
            (4.4, HELD, "extend, say WAITS, ask UNITS"),
            (
                4.5,
                HELD,
                f"say GIVES_UP ({by_systemd(0.5, 5)}), end held",
            ),
        ),
    ),
    "a start of which nothing is known, by systemd's default of 90 s": (
        state(OWN, timeout=150.0),
        (
            (0.1, FREE, ASKED),
            (84.9, FREE, "extend"),
            (
                85.0,
                FREE,
                f"say GIVES_UP ({by_systemd(5, 90)}), end unknown",
            ),
        ),
    ),
    "a start that systemd lets take as long as it likes": (
        state(OWN, timeout=100.0),
        (
            (0.1, {**HELD, **HOST_READ, **starting(timeout=None)}, "extend, ask LISTS"),
            (99.9, HELD, "extend, say WAITS, ask UNITS"),
            (100.0, HELD, "say GIVES_UP (--timeout), end held"),
        ),
    ),
    "a start that is extended": (
        state(OWN, timeout=60.0, may_extend=True),
        (
            (0.1, {**HELD, **HOST_READ, **starting()}, "extend, ask LISTS"),
            (1.0, HELD, "say WAITS"),  # not yet a second after the last extension
            (1.1, HELD, "extend, ask UNITS"),
            (59.9, HELD, "extend, say WAITS"),
            (60.0, HELD, "say GIVES_UP (--timeout), end held"),  # no extension beyond that
        ),
    ),
    "free, but remedies are at work": (
        state(OWN, timeout=100.0, may_extend=True),
        (
            (0.1, {**FREE, **BUSY}, ASKED),
            (0.2, {**FREE, **BUSY, **HOST_READ, **starting()}, "inform"),
            (0.5, {**FREE, **ENDING}, ""),
            (1.2, {**FREE, **ENDING}, "extend, say WAITS, ask UNITS"),
            (1.3, {**FREE, **ENDING, **starting()}, "inform"),
            (2.0, {**FREE, **SETTLED}, "say FREE, end free"),
        ),
    ),
    "remedies that are not done after 45 s": (
        state(OWN, timeout=100.0, may_extend=True),
        (
            (0.2, {**FREE, **BUSY, **HOST_READ, **starting()}, "extend, inform"),
            (45.4, {**FREE, **ENDING}, "extend, say WAITS, ask UNITS"),
            (45.5, {**FREE, **ENDING}, "say REMEDIES_LATE, say FREE, end free"),
        ),
    ),
    "remedies that last longer than the limit": (
        state(OWN, timeout=2.0, may_extend=True),
        (
            (0.2, {**FREE, **BUSY, **HOST_READ, **starting()}, "extend, inform"),
            (2.0, {**FREE, **BUSY}, "say FREE, end free"),
        ),
    ),
    "remedies of which systemd proves nothing": (
        state(replace(OWN, needs_systemd=False), timeout=100.0, may_extend=True),
        (
            (0.2, {**FREE, **BUSY, **HOST_READ, "units": FAILS}, "extend, ask UNITS"),
            (2.9, {**FREE, **BUSY}, "extend, say WAITS"),
            (3.0, {**FREE, **BUSY}, "say REMEDIES_UNPROVEN, say FREE, end free"),
        ),
    ),
    "one that does not die": (
        state(OWN, timeout=2.0, may_extend=True),
        (
            (0.2, {**HELD, **STUCK, **HOST_READ, **starting()}, "extend, inform, ask LISTS"),
            (2.0, {**HELD, **STUCK}, "say GIVES_UP (--timeout), end held"),
        ),
    ),
}


@pytest.mark.parametrize("name", TABLES)
def test_what_comes_when_and_what_follows(name: str) -> None:
    played(*TABLES[name])


PREFIXES = [(name, length) for name, (_, rows) in TABLES.items() for length in range(len(rows))]


@pytest.mark.parametrize(("name", "length"), PREFIXES)
def test_sigterm_ends_every_prefix_of_a_wait_and_starts_nothing(name: str, length: int) -> None:
    begin, rows = TABLES[name]
    before = played(begin, rows[:length])
    now, inputs, _ = rows[length]
    after, actions = step(before, Inputs(at=1e9 + now, **{**inputs, "terminated": True}), now)
    say, *more = actions
    assert isinstance(say, Say)
    assert (say.topic, say.status) == (Topic.TERMINATED, before.status)
    known = before.status is not None and before.status.decision.verdict is not GuardVerdict.UNKNOWN
    end = End(verdict=GuardVerdict.HELD if known else GuardVerdict.UNKNOWN, terminated=True)
    if not begin.target.is_own:
        assert more == [end]
        return
    # In a unit's own start systemd has 0.3 s to confirm that it is stopping the unit.
    assert shown(more) in {"ask UNITS", ""}
    waiting, actions = step(after, Inputs(**starting()), now + 0.1)
    assert shown(actions) == "ask UNITS"
    _, actions = step(waiting, Inputs(**starting("stop-sigterm")), now + 0.2)
    assert actions == (replace(end, unit_is_stopping=True),)
    waiting, actions = step(waiting, Inputs(units=FAILS), now + 0.299)
    assert shown(actions) == "ask UNITS"
    _, actions = step(waiting, Inputs(), now + 0.31)
    assert actions == (end,)


def test_sigterm_that_comes_as_the_start_is_let_on_starts_nothing() -> None:
    after = played(*TABLES["free at once"])
    _, actions = step(after, Inputs(terminated=True), 0.3)
    assert shown(actions) == "say TERMINATED, end held terminated"


def test_it_asks_for_no_reading_that_is_under_way() -> None:
    for begin, rows in TABLES.values():
        state, asked = begin, set[str]()
        for now, inputs, _ in rows:
            asked -= {name.upper() for name in inputs}
            state, actions = step(state, Inputs(at=now, **inputs), now)
            asks = {action.query.name for action in actions if isinstance(action, Ask)}
            assert not asks & asked
            asked |= asks


def test_in_its_own_start_the_guards_environment_says_what_the_unit_gets() -> None:
    """From EnvironmentFile= too, which systemd does not tell of."""
    two = Ok(report([gpu(0, memory=memory(0)), gpu(1, memory=memory(70 * GIB))]))
    inputs = {"memory": two, **HOST_READ, **starting()}
    for number, expected in (("0", "extend, say FREE, end free"), ("1", "extend, ask LISTS")):
        own = replace(OWN, environment=(("CUDA_VISIBLE_DEVICES", number),))
        played(state(own, gpus=(), may_extend=True), [(0.1, inputs, expected)])


def test_a_command_by_hand_is_what_starts() -> None:
    """It asks for 0.9 of what is not reserved: 71.1 of 79 GiB."""
    vllm = ("/opt/vllm", "serve", "m", "--gpu-memory-utilization", "0.9")
    command = Target(unit=None, needs_systemd=False, command=vllm)
    begin = state(command, gpus=(), free_bytes=None)
    played(begin, [(0.1, {**KNOWN, "memory": used(7.8)}, "extend, say FREE, end free")])
    played(begin, [(0.1, {**KNOWN, "memory": used(8)}, "extend, ask LISTS")])
