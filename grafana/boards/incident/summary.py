"""The top of the incident board: the unit's state at the end of the time shown, and what to do."""

from grafana.boards.engines.queries import STATES as ENGINE_STATES
from grafana.boards.engines.queries import engine_state
from grafana.boards.shared import start_now_mappings, visibility
from grafana.kit.panels import BAD_FROM_1, RUNBOOK, STATE_VALUES, Json, instant, stat, text, thresholds
from grafana.kit.queries import (
    BAD,
    BY_HOST,
    BY_UNIT,
    GOOD,
    HOST,
    ODD,
    UNIT,
    counted,
    startable,
    stuck_memory,
    unit_state,
)

OF_UNIT = "{{unit}} {{manager}}"  # Grafana shows the manager only where two units differ by it

_WHAT_TO_DO = f"""\
**Memory is stuck**: no start can succeed
1. `systemctl stop '$unit'`
2. `llmhost status` says who holds it
3. `llmhost clean --unit '$unit'` shows what can go, `--apply` does it
4. once *A start now* is green: `systemctl start '$unit'`
5. that it waits next time: `llmhost guard --install '$unit'`

**Nothing is stuck**: `journalctl -u '$unit' -n 200`

Of a user's own manager: `--user`, as that user.

[Runbook]({RUNBOOK})
"""


def what_to_do() -> Json:
    return text("What to do", "Commands for the host, with the unit that is chosen above.", _WHAT_TO_DO)


def banner() -> list[Json]:
    automatic = counted("llmhost_unit_starts_total", f'trigger="auto", {UNIT}', BY_UNIT, "1h")
    resident = counted("llmhost_unit_starts_total", f'trigger="auto", verdict="resident", {UNIT}', BY_UNIT, "1h")
    since = f"max by ({BY_UNIT}) (llmhost_unit_state_change_timestamp_seconds{{{UNIT}}}) * 1000"
    stuck = (
        f"sum by ({BY_HOST}) ({stuck_memory(HOST)})"
        f" or 0 * sum by ({BY_HOST}) (llmhost_gpu_unattributed_memory_bytes{{{HOST}}})"
    )
    return [
        visibility(),
        stat(
            "State",
            "What systemd says that the unit is doing.",
            [instant(unit_state(UNIT), OF_UNIT)],
            mappings=STATE_VALUES,
        ),
        stat(
            "Since",
            "When the unit came into this state.",
            [instant(since, OF_UNIT)],
            unit="dateTimeFromNow",
        ),
        stat(
            "Restarts, 1 h",
            "Automatic starts by systemd within the last hour, each of them, also those between two scrapes. Red from "
            "2 on: LlmhostRestartLoop goes by it.",
            [instant(automatic, OF_UNIT)],
            unit="none",
            steps=thresholds((None, GOOD), (1, ODD), (2, BAD)),
            decimals=0,
        ),
        stat(
            "… resident",
            "Those of them that found more than policy.resident on the unit's GPUs that should not have been there.",
            [instant(resident, OF_UNIT)],
            unit="none",
            steps=BAD_FROM_1,
            decimals=0,
        ),
        stat(
            "Stuck",
            "On the host's GPUs: memory of ended runs, orphans, processes that are gone, and nobody, on GPUs with "
            "more than policy.resident of it. No data: GPUs or processes cannot be read, or memory is unified.",
            [instant(stuck)],
            unit="bytes",
            steps=BAD_FROM_1,
            decimals=0,
        ),
        stat(
            "A start now",
            "Whether the unit's GPUs have free what it will ask for. `it is up`: there is nothing to tell. `starts or "
            "stops`: it may wait in its guard for memory. `not known`: what it needs, or where, is not.",
            [instant(startable(UNIT), OF_UNIT)],
            mappings=start_now_mappings("not known"),
        ),
        stat(
            "Engine",
            "The worst of the unit's servers: an active unit may load still, or hang, that is have requests and do "
            "nothing for five minutes. No data: no server is found, or nobody looks.",
            [instant(engine_state(UNIT, BY_UNIT), OF_UNIT)],
            mappings=ENGINE_STATES,
        ),
    ]
