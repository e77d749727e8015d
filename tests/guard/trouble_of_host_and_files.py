"""The guard's answer where the host, its processes or files are in trouble."""

from collections.abc import Mapping
from dataclasses import replace

from tests.fakes.values import GIB
from tests.guard.steps import FIRST_ACTIONS, FREE, HELD, HOST_READ, KNOWN, LISTS, starting, state, units
from tests.guard.trouble import (
    ERROR,
    HIDDEN,
    LATE,
    LOOKS,
    MISTAKE,
    NEEDS_SHM,
    NO_CONFIG,
    NO_HISTORY,
    NO_PROCFS,
    NO_SHM,
    PASSES,
    PROCESSES_LATE,
    READ,
    REAPS,
    REFUSES,
    SETTLED,
    SHM_LATE,
    UNIFIED,
    UNREAD,
    Key,
    Wait,
)

from llmhost.config.schema import Config
from llmhost.decide.guard.state import File
from llmhost.model.history.history import History
from llmhost.model.reading import Ok

HOST_AND_FILES: Mapping[Key, Wait] = {
    ("processes", "late", "the holders have no names meanwhile"): (
        state(),
        (
            (0.1, {**KNOWN, **HELD}, "extend, ask LISTS"),
            (0.2, {**HELD, **LISTS}, "ask PROCESSES"),
            (1.2, HELD, "extend, say WAITS, ask UNITS"),
            (5.3, {**HELD, "processes": LATE}, "extend"),
            (5.4, FREE, "say FREE, end free"),
        ),
    ),
    ("processes", "late", "remedies look again"): (
        REAPS,
        (
            (0.1, {**FREE, **LOOKS, **PASSES}, "extend, inform"),
            (5.2, {**FREE, **PROCESSES_LATE}, "extend, say WAITS, ask UNITS"),
            (10.3, {**FREE, **SETTLED}, "extend, say FREE, end free"),
        ),
    ),
    ("processes", "fails once", "remedies look again"): (
        REAPS,
        (
            (0.1, {**FREE, **LOOKS, **PASSES}, "extend, inform"),
            (0.2, {**FREE, **HIDDEN}, "say WAITS"),
            (1.3, {**FREE, **SETTLED}, "extend, say FREE, end free"),
        ),
    ),
    ("processes", "fails for good", "held without names"): (
        state(timeout=6.0),
        (
            (0.1, {**KNOWN, **HELD}, "extend, ask LISTS"),
            (0.2, {**HELD, **LISTS}, "ask PROCESSES"),
            (0.3, {**HELD, "processes": ERROR}, ""),
            (6.0, HELD, "say GIVES_UP (--timeout), end held"),
        ),
    ),
    ("processes", "fails for good", "remedies give up after 45 s"): (
        REAPS,
        (
            (0.1, {**FREE, **LOOKS, **PASSES}, "extend, inform"),
            (44.9, {**FREE, **PROCESSES_LATE}, "extend, say WAITS, ask UNITS"),
            (45.0, {**FREE, **PROCESSES_LATE}, "say REMEDIES_LATE (processes are late), say FREE, end free"),
        ),
    ),
    ("processes", "absent", "remedies that may not see them are given up after 3 s on end"): (
        REAPS,
        (
            (0.1, {**FREE, **LOOKS, **PASSES}, "extend, inform"),
            (0.2, {**FREE, **HIDDEN}, "say WAITS"),
            (3.1, {**FREE, **HIDDEN}, "extend, ask UNITS"),
            (3.2, {**FREE, **HIDDEN}, "say REMEDIES_UNPROVEN (processes are hidden), say FREE, end free"),
        ),
    ),
    ("host", "late", "memory is judged without once that is told"): (
        state(),
        ((0.1, FREE, FIRST_ACTIONS), (2.0, FREE, "extend"), (2.1, {**FREE, "host": LATE}, "say FREE, end free")),
    ),
    ("host", "late", "remedies wait for its clocks"): (
        REAPS,
        (
            (0.1, {**FREE, **LOOKS}, FIRST_ACTIONS),
            (2.1, {**FREE, **LOOKS, **starting(), "host": LATE}, "extend, say WAITS, ask HOST"),
            (2.5, {**FREE, **LOOKS, **HOST_READ}, "inform"),
            (2.6, {**FREE, **SETTLED}, "say FREE, end free"),
        ),
    ),
    ("host", "fails once", "shared memory of GPU and host is judged by the next reading"): (
        state(free_bytes=100 * GIB),
        (
            (0.1, {**UNIFIED, "host": ERROR, **units()}, "extend, ask HOST, ask LISTS"),
            (0.2, {**UNIFIED, **HOST_READ}, "say FREE, end free"),
        ),
    ),
    ("host", "fails for good", "remedies give up after 45 s"): (
        REAPS,
        (
            (0.1, {**FREE, **LOOKS, **starting(), "host": ERROR}, "extend, say WAITS, ask HOST"),
            (44.9, {**FREE, **LOOKS, "host": ERROR}, "extend, say WAITS, ask HOST, ask UNITS"),
            (
                45.0,
                {**FREE, **LOOKS},
                "say REMEDIES_LATE (the host cannot be read (unknown (error))), say FREE, end free",
            ),
        ),
    ),
    ("host", "absent", "no meminfo: remedies are given up after 3 s on end"): (
        REAPS,
        (
            (0.1, {**FREE, **LOOKS, **starting(), "host": NO_PROCFS}, "extend, say WAITS, ask HOST"),
            (3.0, {**FREE, **LOOKS, "host": NO_PROCFS}, "extend, ask HOST, ask UNITS"),
            (
                3.1,
                {**FREE, **LOOKS},
                "say REMEDIES_UNPROVEN (the host cannot be read (no procfs (no meminfo))), say FREE, end free",
            ),
        ),
    ),
    ("config", "late", "a start is not let on without for 3 s, and the config counts when it comes"): (
        UNREAD,
        (
            (0.1, {**FREE, **LOOKS, **PASSES, "history": Ok(History())}, "extend"),
            (2.9, {**FREE, **LOOKS}, "extend, ask UNITS"),
            (3.0, {**FREE, **LOOKS, "config": NO_CONFIG}, "inform, say NO_CONFIG (silent config), say WAITS"),
            (
                20.0,
                {**FREE, **SETTLED, "config": Ok(Config())},
                "configure, say FILE_CAME (config), extend, inform, say WAITS",
            ),
            (20.1, {**FREE, **SETTLED}, "say FREE, end free"),
        ),
    ),
    ("config", "late", "without remedies nothing waits for it any longer"): (
        UNREAD,
        (
            (0.1, {**FREE, **PASSES, "history": Ok(History())}, "extend"),
            (3.0, {**FREE, "config": NO_CONFIG}, "extend, say NO_CONFIG (silent config), say FREE, end free"),
        ),
    ),
    ("config", "late", "it is waited for also where there is no time to wait for memory"): (
        replace(state(timeout=0.0), unread=frozenset(File)),
        (
            (0.1, {**KNOWN, **HELD, "history": Ok(History())}, ""),
            (0.2, {**HELD, "config": Ok(Config())}, "configure, ask LISTS"),
            (1.0, HELD, "say GIVES_UP (--timeout), end held"),
        ),
    ),
    ("config", "fails once", "it is read again"): (
        REFUSES,
        (
            (0.1, {**FREE, **PASSES, "history": Ok(History()), "config": MISTAKE}, "extend"),
            (1.2, {**FREE, "config": Ok(Config())}, "configure, extend, say FREE, end free"),
        ),
    ),
    ("config", "fails for good", "the defaults, after 3 s"): (
        UNREAD,
        (
            (0.1, {**FREE, **LOOKS, **PASSES, "history": Ok(History()), "config": MISTAKE}, "extend"),
            (2.9, {**FREE, **LOOKS, "config": MISTAKE}, "extend, ask UNITS"),
            (3.0, {**FREE, **LOOKS}, "inform, say NO_CONFIG (mistake), say WAITS"),
            (3.1, {**FREE, **SETTLED}, "say FREE, end free"),
        ),
    ),
    ("config", "fails for good", "or a fault that refuses, after 3 s"): (
        REFUSES,
        (
            (0.1, {**FREE, **PASSES, "history": Ok(History()), "config": MISTAKE}, "extend"),
            (3.0, FREE, "extend, say NO_CONFIG_REFUSED (mistake), end fault"),
        ),
    ),
    ("config", "absent", "the defaults"): (
        UNREAD,
        ((0.1, {**FREE, **PASSES, **READ}, "configure, extend, say FREE, end free"),),
    ),
    ("history", "late", "a start is not let on without for 3 s, and remedies look again when it comes"): (
        UNREAD,
        (
            (0.1, {**FREE, **LOOKS, **PASSES, "config": Ok(Config())}, "configure, extend"),
            (
                3.0,
                {**FREE, **LOOKS, "history": NO_HISTORY},
                "extend, inform, say NO_HISTORY (silent history), say WAITS, ask UNITS",
            ),
            (4.0, {**FREE, **SETTLED}, "extend"),
            (20.0, {**FREE, **SETTLED, "history": Ok(History())}, "say FILE_CAME (history), extend, inform, say WAITS"),
            (20.1, {**FREE, **SETTLED}, "say FREE, end free"),
        ),
    ),
    ("history", "late", "without remedies nothing waits for it any longer"): (
        UNREAD,
        (
            (0.1, {**FREE, **PASSES, "config": Ok(Config())}, "configure, extend"),
            (3.0, {**FREE, "history": NO_HISTORY}, "extend, say NO_HISTORY (silent history), say FREE, end free"),
        ),
    ),
    ("history", "late", "what fails as it comes has 3 s as well"): (
        UNREAD,
        (
            (
                3.0,
                {**FREE, **LOOKS, **PASSES, "config": Ok(Config()), "history": NO_HISTORY},
                "configure, extend, inform, say NO_HISTORY (silent history), say WAITS",
            ),
            (9.0, {**FREE, **SETTLED, "history": MISTAKE}, "extend, inform, say WAITS, ask UNITS"),
            (10.1, {**FREE, **SETTLED, "history": MISTAKE}, "extend, inform"),
            (11.9, {**FREE, **SETTLED}, "extend"),
            (12.0, {**FREE, **SETTLED}, "say FREE, end free"),
        ),
    ),
    ("history", "fails once", "it is read again"): (
        UNREAD,
        (
            (0.1, {**FREE, **PASSES, "config": Ok(Config()), "history": MISTAKE}, "configure, extend"),
            (1.2, {**FREE, "history": Ok(History())}, "extend, say FREE, end free"),
        ),
    ),
    ("history", "fails for good", "the wait goes on without, and remedies end what they can prove without"): (
        UNREAD,
        (
            (0.1, {**FREE, **LOOKS, **PASSES, "config": Ok(Config()), "history": MISTAKE}, "configure, extend"),
            (3.0, {**FREE, **LOOKS}, "extend, inform, say NO_HISTORY (mistake), say WAITS, ask UNITS"),
            (3.1, {**FREE, **SETTLED}, "say FREE, end free"),
        ),
    ),
    ("history", "fails for good", "remedies give up after 45 s where it never answers"): (
        UNREAD,
        (
            (
                3.0,
                {**FREE, **LOOKS, **PASSES, "config": Ok(Config()), "history": NO_HISTORY},
                "configure, extend, inform, say NO_HISTORY (silent history), say WAITS",
            ),
            (44.9, {**FREE, **SETTLED}, "extend, say WAITS, ask UNITS"),
            (45.0, {**FREE, **SETTLED}, "say REMEDIES_LATE (silent history), say FREE, end free"),
        ),
    ),
    ("history", "absent", "the wait goes on without"): (
        UNREAD,
        ((0.1, {**FREE, **PASSES, **READ}, "configure, extend, say FREE, end free"),),
    ),
    ("/dev/shm", "late", "cannot tell until it answers"): (
        NEEDS_SHM,
        (
            (0.1, {**KNOWN, **FREE}, "extend, say WAITS, ask LISTS"),
            (1.2, {**FREE, "shm_free_bytes": 16 * GIB}, "extend, say FREE, end free"),
        ),
    ),
    ("/dev/shm", "late", "remedies look again"): (
        REAPS,
        (
            (0.1, {**FREE, **LOOKS, **PASSES}, "extend, inform"),
            (5.2, {**FREE, **SHM_LATE}, "extend, say WAITS, ask UNITS"),
            (6.3, {**FREE, **SETTLED}, "extend, say FREE, end free"),
        ),
    ),
    ("/dev/shm", "fails once", "the next reading counts"): (
        NEEDS_SHM,
        (
            (0.1, {**KNOWN, **FREE, "shm_free_bytes": 16 * GIB - 1}, "extend, say WAITS, ask LISTS"),
            (0.2, FREE, ""),
            (0.3, {**FREE, "shm_free_bytes": 16 * GIB}, "say FREE, end free"),
        ),
    ),
    ("/dev/shm", "fails for good", "cannot tell, at the end of the wait"): (
        NEEDS_SHM,
        (
            (0.1, {**KNOWN, **FREE}, "extend, say WAITS, ask LISTS"),
            (2.0, FREE, "say GIVES_UP (--timeout), end unknown"),
        ),
    ),
    ("/dev/shm", "fails for good", "remedies give up after 45 s"): (
        REAPS,
        (
            (0.1, {**FREE, **LOOKS, **PASSES}, "extend, inform"),
            (44.9, {**FREE, **SHM_LATE}, "extend, say WAITS, ask UNITS"),
            (45.0, {**FREE, **SHM_LATE}, "say REMEDIES_LATE (shm is late), say FREE, end free"),
        ),
    ),
    ("/dev/shm", "absent", "remedies are given up after 3 s on end"): (
        REAPS,
        (
            (0.1, {**FREE, **NO_SHM, **PASSES}, "extend, inform, say WAITS"),
            (3.0, {**FREE, **NO_SHM}, "extend, ask UNITS"),
            (3.1, {**FREE, **NO_SHM}, "say REMEDIES_UNPROVEN (no tmpfs), say FREE, end free"),
        ),
    ),
}
