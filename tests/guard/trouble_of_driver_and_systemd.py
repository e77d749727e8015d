"""The guard's answer where the driver or systemd is in trouble."""

from collections.abc import Mapping

from tests.guard.steps import (
    FAILS,
    FIRST_ACTIONS,
    FREE,
    HELD,
    HOST_READ,
    KNOWN,
    LISTS,
    NO_DRIVER,
    PROCESSES,
    starting,
    state,
    units,
    used,
)
from tests.guard.trouble import (
    ALL_NEED_UNKNOWN,
    BUS_ERROR,
    BUSY,
    EMPTY,
    ERROR,
    GROWING,
    LATE,
    LOOKS,
    NEED_UNKNOWN,
    OFF_THE_BUS,
    PASSES,
    REAPS_BY_OPTIONS,
    SETTLED,
    UNLISTED,
    Key,
    Wait,
    need_unknown,
)

DRIVER_AND_SYSTEMD: Mapping[Key, Wait] = {
    ("GPU memory", "late", "the call that it hangs in is told, and memory has to be read again"): (
        state(),
        (
            (0.1, KNOWN, "extend"),
            (1.6, {"memory": LATE}, "extend, say WAITS, ask UNITS"),
            (2.1, FREE, "say FREE, end free"),
        ),
    ),
    ("GPU memory", "fails once", "the next reading counts"): (
        state(),
        ((0.1, {**KNOWN, "memory": ERROR}, "extend, say WAITS"), (0.2, FREE, "say FREE, end free")),
    ),
    ("GPU memory", "fails once", "and has to stand still anew"): (
        state(settle_seconds=1.0),
        (
            (0.1, {**KNOWN, **FREE}, "extend, ask LISTS"),
            (1.0, {"memory": ERROR}, "say WAITS"),
            (1.2, FREE, "extend, ask UNITS"),
            (2.1, FREE, "say WAITS"),
            (2.2, FREE, "extend, say FREE, end free"),
        ),
    ),
    ("GPU memory", "fails for good", "cannot tell, at the end of the wait"): (
        state(timeout=6.0),
        (
            (0.1, {**KNOWN, "memory": ERROR}, "extend, say WAITS"),
            (5.9, {"memory": ERROR}, "extend, say WAITS, ask UNITS"),
            (6.0, {"memory": ERROR}, "say GIVES_UP (--timeout), end unknown"),
        ),
    ),
    ("GPU memory", "absent", "no driver: cannot tell, at the end of the wait"): (
        state(timeout=6.0),
        (
            (0.1, {**KNOWN, **NO_DRIVER}, "extend, say WAITS"),
            (5.9, NO_DRIVER, "extend, say WAITS, ask UNITS"),
            (6.0, NO_DRIVER, "say GIVES_UP (--timeout), end unknown"),
        ),
    ),
    ("GPU memory", "absent", "a GPU that is not listed: cannot tell, after 3 s in which the list has not grown"): (
        state(timeout=1000.0),
        (
            (300.1, {**KNOWN, **UNLISTED}, "extend, say WAITS, ask LISTS"),
            (303.0, GROWING, "extend, ask UNITS"),
            (305.9, GROWING, "extend, say WAITS"),
            (306.0, GROWING, "say GIVES_UP (no waiting mends that), end unknown"),
        ),
    ),
    ("GPU memory", "absent", "within 5 min from the boot on: it may be listed yet"): (
        state(timeout=1000.0),
        (
            (0.1, {**KNOWN, **UNLISTED}, "extend, say WAITS, ask LISTS"),
            (299.9, UNLISTED, "extend, say WAITS, ask UNITS"),
            (302.0, UNLISTED, "extend"),
            (302.1, FREE, "say FREE, end free"),
        ),
    ),
    ("process lists", "late", "the holders have no names meanwhile"): (
        state(),
        (
            (0.1, {**KNOWN, **HELD}, "extend, ask LISTS"),
            (1.2, HELD, "extend, say WAITS, ask UNITS"),
            (5.2, {**HELD, "lists": LATE}, "extend, ask PROCESSES"),
            (5.3, FREE, "say FREE, end free"),
        ),
    ),
    ("process lists", "fails once", "they are read again a second later"): (
        state(),
        (
            (0.1, {**KNOWN, **HELD}, "extend, ask LISTS"),
            (0.2, {**HELD, "lists": ERROR}, "ask PROCESSES"),
            (0.3, {**HELD, **PROCESSES}, ""),
            (1.2, HELD, "extend, say WAITS, ask UNITS"),
            (1.3, HELD, "ask LISTS"),
            (1.4, {**HELD, **LISTS}, "ask PROCESSES"),
        ),
    ),
    ("process lists", "fails for good", "held without names"): (
        state(timeout=1.0),
        (
            (0.1, {**KNOWN, **HELD}, "extend, ask LISTS"),
            (0.2, {**HELD, "lists": ERROR}, "ask PROCESSES"),
            (0.3, {**HELD, **PROCESSES}, ""),
            (1.0, HELD, "say GIVES_UP (--timeout), end held"),
        ),
    ),
    ("process lists", "absent", "they are not asked for where memory is free"): (
        state(),
        ((0.1, {**KNOWN, **FREE}, "extend, say FREE, end free"),),
    ),
    ("systemd", "late", "memory is judged as for an unknown need, on the GPUs that the environment leaves"): (
        NEED_UNKNOWN,
        (
            (0.1, HELD, FIRST_ACTIONS),
            (2.2, {**HELD, **HOST_READ, "units": BUSY}, "extend, say WAITS, ask UNITS, ask LISTS"),
            (40.0, {**HELD, "units": LATE}, "extend, say WAITS, ask UNITS"),
            (40.1, {**EMPTY, **PASSES}, "say FREE, end free"),
        ),
    ),
    ("systemd", "late", "free memory lets nothing on before systemd has told"): (
        NEED_UNKNOWN,
        (
            (2.2, {**EMPTY, **HOST_READ, "units": BUSY}, "extend, say WAITS, ask UNITS"),
            (40.0, {**EMPTY, "units": LATE}, "extend, say WAITS, ask UNITS"),
            (40.1, {"memory": used(20), **PASSES}, "ask LISTS"),
            (40.2, EMPTY, "say FREE, end free"),
        ),
    ),
    ("systemd", "late", "in a service's own start it is being re-executed where it is not on the bus"): (
        NEED_UNKNOWN,
        (
            (0.2, {**HELD, **HOST_READ, "units": OFF_THE_BUS}, "extend, ask UNITS, ask LISTS"),
            (9.0, {**HELD, "units": OFF_THE_BUS}, "extend, say WAITS, ask UNITS"),
            (9.1, {**EMPTY, **PASSES}, "say FREE, end free"),
        ),
    ),
    ("systemd", "late", "remedies wait also where the need is known"): (
        REAPS_BY_OPTIONS,
        (
            (0.1, {**FREE, **LOOKS}, FIRST_ACTIONS),
            (2.2, {**FREE, **LOOKS, **HOST_READ, "units": BUSY}, "extend, say WAITS, ask UNITS"),
            (40.0, {**FREE, **LOOKS, **starting()}, "extend, inform, say WAITS"),
            (40.1, {**FREE, **SETTLED}, "say FREE, end free"),
        ),
    ),
    ("systemd", "late", "it knows the unit that this runs in only later, or not any more"): (
        NEED_UNKNOWN,
        (
            (0.1, {**EMPTY, **HOST_READ, **units()}, "extend, say WAITS"),
            (9.0, {**HELD, **starting(load_state="not-found")}, "extend, say WAITS, ask LISTS"),
            (9.1, {"memory": used(20), **starting()}, ""),
            (9.2, EMPTY, "say FREE, end free"),
        ),
    ),
    ("systemd", "fails once", "it is asked again"): (
        ALL_NEED_UNKNOWN,
        (
            (0.1, {**EMPTY, **HOST_READ, "units": BUS_ERROR}, "extend, say WAITS, ask UNITS"),
            (0.2, {**EMPTY, **starting()}, "say FREE, end free"),
        ),
    ),
    ("systemd", "fails for good", "held memory holds the start to the end"): (
        need_unknown(10.0),
        (
            (2.2, {**HELD, **HOST_READ, "units": BUSY}, "extend, say WAITS, ask UNITS, ask LISTS"),
            (9.9, {**HELD, "units": LATE}, "extend, say WAITS, ask UNITS"),
            (10.0, HELD, "say GIVES_UP (--timeout), end held"),
        ),
    ),
    ("systemd", "fails for good", "else it is a fault at the end of the wait"): (
        need_unknown(10.0),
        (
            (2.2, {**EMPTY, **HOST_READ, "units": BUSY}, "extend, say WAITS, ask UNITS"),
            (9.9, {**EMPTY, "units": LATE}, "extend, say WAITS, ask UNITS"),
            (10.0, EMPTY, "say NEED_UNKNOWN (systemd cannot be asked: timeout (reading)), end fault"),
        ),
    ),
    ("systemd", "fails for good", "its first answer has 4 s, however short the wait"): (
        need_unknown(0.0),
        (
            (2.2, {**HELD, **HOST_READ, "units": BUSY}, "say WAITS, ask UNITS, ask LISTS"),
            (3.9, HELD, ""),
            (4.0, HELD, "say GIVES_UP (--timeout), end held"),
        ),
    ),
    ("systemd", "fails for good", "remedies give up after 45 s"): (
        REAPS_BY_OPTIONS,
        (
            (2.2, {**FREE, **LOOKS, **HOST_READ, "units": BUSY}, "extend, say WAITS, ask UNITS"),
            (44.9, {**FREE, **LOOKS, "units": LATE}, "extend, say WAITS, ask UNITS"),
            (
                45.0,
                {**FREE, **LOOKS},
                "say REMEDIES_LATE (systemd does not tell of the unit (timeout (reading))), say FREE, end free",
            ),
        ),
    ),
    ("systemd", "absent", "a fault, after 3 s on end"): (
        ALL_NEED_UNKNOWN,
        (
            (0.1, {**HELD, **HOST_READ, "units": FAILS}, "extend, ask UNITS"),
            (2.0, {**HELD, "units": BUSY}, "extend, say WAITS, ask UNITS, ask LISTS"),
            (3.0, {**HELD, "units": FAILS}, "extend, ask UNITS"),
            (5.9, HELD, "extend"),
            (6.0, HELD, "say NEED_UNKNOWN (systemd cannot be asked: no bus (no socket)), end fault"),
        ),
    ),
    ("systemd", "absent", "by hand also where nobody on the bus is systemd"): (
        ALL_NEED_UNKNOWN,
        (
            (0.1, {**HELD, **HOST_READ, "units": OFF_THE_BUS}, "extend, ask UNITS"),
            (3.1, HELD, "extend, say NEED_UNKNOWN (systemd cannot be asked: no systemd (no owner)), end fault"),
        ),
    ),
    ("systemd", "absent", "remedies are given up after 3 s on end"): (
        REAPS_BY_OPTIONS,
        (
            (0.1, {**FREE, **LOOKS, **HOST_READ, "units": FAILS}, "extend, say WAITS, ask UNITS"),
            (3.0, {**FREE, **LOOKS}, "extend"),
            (
                3.1,
                {**FREE, **LOOKS},
                "say REMEDIES_UNPROVEN (systemd does not tell of the unit (no bus (no socket))), say FREE, end free",
            ),
        ),
    ),
}
