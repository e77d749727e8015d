"""Waits of the guard: what comes at which time, and what the guard does then.

It waits for GPU 0 of 80 GiB, 1 GiB of it reserved, of which 40 GiB must be free: steps.py.
"""

from collections.abc import Mapping
from dataclasses import replace

from tests.fakes.values import GIB, HOST, in_service, process, table, unit
from tests.guard.steps import (
    FAILS,
    FIRST_ACTIONS,
    FREE,
    HELD,
    HOST_READ,
    KNOWN,
    LISTS,
    MISMATCH,
    NO_DRIVER,
    NOTHING,
    OWN,
    PROCESSES,
    SERVICE,
    Row,
    by_systemd,
    starting,
    state,
    units,
    used,
)

from llmhost.decide.guard.state import GuardState, RemedyProgress
from llmhost.decide.guard.target import Target
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, NotApplicable, Ok

UNIFIED = {"memory": used(0, memory=NotApplicable(), unified_memory=True)}
BUSY = {"remedies": RemedyProgress(began=0.0)}
LATE = {"remedies": RemedyProgress(began=3.0)}
ENDING = {"remedies": RemedyProgress(began=0.0, acting_since=0.5)}
SETTLED = {"remedies": RemedyProgress(began=0.0, settled=True)}
STUCK = {"remedies": RemedyProgress(began=0.0, settled=True, stuck=(process(50),))}
NEIGHBOUR = {"processes": Ok(table([process(50, in_service("vllm-b.service"), comm="python3")]))}

# By what happens: the state at the beginning, and what comes when, with the actions that follow.
TABLES: Mapping[str, tuple[GuardState, tuple[Row, ...]]] = {
    "free at once": (
        state(),
        (
            (0.1, NOTHING, FIRST_ACTIONS),
            (0.2, {**KNOWN, **FREE}, "say FREE, end free"),
        ),
    ),
    "free by memory alone, whatever systemd does": (
        state(),
        (
            (0.1, FREE, FIRST_ACTIONS),
            (0.2, HOST_READ, "say FREE, end free"),
        ),
    ),
    "held to the end, with the holder's name": (
        state(timeout=6.0),
        (
            (0.1, HELD, FIRST_ACTIONS),
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
            (0.2, {"memory": used(10, fabric_ready=False), "lists": used(10, holders=Ok(()))}, "ask PROCESSES"),
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
            (0.1, FREE, FIRST_ACTIONS),
            (0.2, {**FREE, **HOST_READ}, ""),
            (0.3, {**FREE, **starting()}, "say FREE, end free"),
        ),
    ),
    "a unit that systemd does not know": (
        state(SERVICE),
        (
            (0.1, FREE, FIRST_ACTIONS),
            (0.2, {**FREE, **units(unit("vllm-b.service"))}, "end fault no_such_unit"),
        ),
    ),
    "a unit that is given by another name": (
        state(replace(SERVICE, unit=UnitId("alias.service"))),
        (
            (0.1, FREE, FIRST_ACTIONS),
            (0.2, {**FREE, **HOST_READ, **starting(aliases=("alias.service",))}, "say FREE, end free"),
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
            (0.1, FREE, FIRST_ACTIONS),
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
        state(OWN, timeout=60.0, may_notify=True),
        (
            (0.1, {**HELD, **HOST_READ, **starting()}, "extend, ask LISTS"),
            (1.0, HELD, "say WAITS"),  # not yet a second after the last extension
            (1.1, HELD, "extend, ask UNITS"),
            (59.9, HELD, "extend, say WAITS"),
            (60.0, HELD, "say GIVES_UP (--timeout), end held"),  # no extension beyond that
        ),
    ),
    "free, but remedies are at work": (
        state(OWN, timeout=100.0, may_notify=True),
        (
            (0.1, {**FREE, **BUSY}, FIRST_ACTIONS),
            (0.2, {**FREE, **BUSY, **HOST_READ, **starting()}, "inform"),
            (0.5, {**FREE, **ENDING}, ""),
            (1.2, {**FREE, **ENDING}, "extend, say WAITS, ask UNITS"),
            (1.3, {**FREE, **ENDING, **starting()}, "inform"),
            (2.0, {**FREE, **SETTLED}, "say FREE, end free"),
        ),
    ),
    "remedies that are not done after 45 s": (
        state(OWN, timeout=100.0, may_notify=True),
        (
            (0.2, {**FREE, **BUSY, **HOST_READ, **starting()}, "extend, inform"),
            (45.4, {**FREE, **ENDING}, "extend, say WAITS, ask UNITS"),
            (45.5, {**FREE, **ENDING}, "say REMEDIES_LATE, say FREE, end free"),
        ),
    ),
    "remedies that last longer than the limit": (
        state(OWN, timeout=2.0, may_notify=True),
        (
            (0.2, {**FREE, **BUSY, **HOST_READ, **starting()}, "extend, inform"),
            (2.0, {**FREE, **BUSY}, "say REMEDIES_LATE, say FREE, end free"),
        ),
    ),
    "remedies of which systemd proves nothing": (
        state(replace(OWN, needs_systemd=False), timeout=100.0, may_notify=True),
        (
            (0.2, {**FREE, **BUSY, **HOST_READ, "units": FAILS}, "extend, say WAITS, ask UNITS"),
            (3.1, {**FREE, **BUSY}, "extend"),
            (
                3.2,
                {**FREE, **BUSY},
                "say REMEDIES_UNPROVEN (systemd does not tell of the unit (no bus (no socket))), say FREE, end free",
            ),
        ),
    ),
    "remedies that began late, as the history did not answer": (
        state(replace(OWN, needs_systemd=False), timeout=100.0, may_notify=True),
        (
            (3.1, {**FREE, **LATE, **HOST_READ}, "extend, say WAITS, ask UNITS"),
            (5.9, {**FREE, **LATE, **starting()}, "extend, inform"),
            (47.9, {**FREE, **LATE}, "extend, say WAITS, ask UNITS"),
            (48.0, {**FREE, **LATE}, "say REMEDIES_LATE, say FREE, end free"),
        ),
    ),
    "one that does not die": (
        state(OWN, timeout=2.0, may_notify=True),
        (
            (0.2, {**HELD, **STUCK, **HOST_READ, **starting()}, "extend, inform, ask LISTS"),
            (2.0, {**HELD, **STUCK}, "say GIVES_UP (--timeout), end held"),
        ),
    ),
}
