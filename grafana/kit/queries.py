"""PromQL and colours that several panels share."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

# Matchers. Many set-ups have no `cluster` label: "All" of that variable matches its absence too.
CLUSTERS = 'cluster=~"$cluster", job=~"$job"'
HOST = f'{CLUSTERS}, instance=~"$instance"'
# The system manager and a user manager of a host may have units of the same name.
UNIT = f'{HOST}, unit=~"$unit", manager=~"$manager"'
BY_HOST = "cluster, job, instance"
BY_UNIT = f"{BY_HOST}, unit, manager"

# A colour that judges means the same on all boards; other series have Grafana's own colours.
GOOD, BAD, WORSE, ODD, WAITING, CALM = "green", "red", "dark-red", "orange", "yellow", "#8e8e8e"
GUARDING, STARTING = "purple", "blue"

KINDS: Mapping[str, str] = {
    "current": GOOD,
    "leftover": BAD,
    "orphan": WORSE,
    "gone": "purple",
    "unattributed": ODD,
    "session": "light-blue",
    "container": "blue",
    "other": "light-yellow",
    "system": CALM,
}
VERDICTS: Mapping[str, str] = {"clean": GOOD, "resident": BAD, "unknown": CALM, "not_started": ODD}
RESULTS: Mapping[str, str] = {
    "exit-code": BAD,
    "oom-kill": WORSE,
    "signal": ODD,
    "core-dump": "light-orange",
    "timeout": "purple",
    "watchdog": "light-purple",
    "start-limit-hit": CALM,
    "resources": "blue",
    "protocol": "light-blue",
    "exec-condition": "super-light-blue",
}
SHM_STATES: Mapping[str, str] = {"live": GOOD, "unheld": WAITING, "stale": BAD, "unknown": CALM}
TRACKER_STATES: Mapping[str, str] = {"attached": GOOD, "orphaned": BAD, "detached": "blue", "zombie": ODD}
GUARD_VERDICTS: Mapping[str, str] = {"free": GOOD, "held": BAD, "unknown": CALM, "fault": ODD}


@dataclass(frozen=True, slots=True)
class State:
    """A unit's state as a number; the codes are those of instance_unit:llmhost_unit_state:code."""

    code: int
    text: str
    colour: str


STATES: Sequence[State] = (
    State(1, "active", GOOD),
    State(2, "reloading", "light-green"),
    State(3, "activating", STARTING),
    State(4, "start-pre", GUARDING),
    State(5, "deactivating", WAITING),
    State(6, "waiting to restart", ODD),
    State(7, "inactive", CALM),
    State(8, "failed", BAD),
    State(9, "maintenance", WORSE),
)
WAITING_TO_RESTART = 'state=~"auto-restart.*|(failed|dead)-before-auto-restart"'
# Numbers below all real values for what is no reading, so that tables keep their rows.
NOT_APPLICABLE, CANNOT_TELL, UNDER_WAY = -1, -2, -3


def unit_state(matchers: str) -> str:
    """Query each unit's code of STATES: from its sub-state where that tells more, else from its active state."""
    active = " or ".join(
        f'{code} * (llmhost_unit_active_state{{state=~"{states}", {matchers}}} == 1)'
        for code, states in (
            (1, "active"),
            (2, "reloading|refreshing"),
            (3, "activating"),
            (5, "deactivating"),
            (7, "inactive"),
            (8, "failed"),
            (9, "maintenance"),
        )
    )
    return (
        f"max by ({BY_UNIT}) (6 * llmhost_unit_sub_state{{{WAITING_TO_RESTART}, {matchers}}})"
        f' or max by ({BY_UNIT}) (4 * llmhost_unit_sub_state{{state="start-pre", {matchers}}})'
        f" or max by ({BY_UNIT}) ({active})"
    )


# Counters of starts, failures and guard runs are small numbers, and each step of them matters: increase() extrapolates
# and shows one start as 1.25 or as 2.5. The next two count exactly; all other counters are inside rate().


def events(counter: str, matchers: str, by: str, *, from_0: bool = False) -> str:
    """Query the count in each step; needs a least step that is longer than the scrape interval.

    After a reset it counts from the new value. In the first step of a series it counts from the first sample; with
    `from_0`, for counters that appear with their first event, from 0 if the host was seen before.
    """
    series = f"{counter}{{{matchers}}}"
    known_before = (
        f"0 * {series} and on ({BY_HOST}) llmhost_build_info{{{HOST}}} offset $__interval or " if from_0 else ""
    )
    before = f"({series} offset $__interval or {known_before}min_over_time({series}[$__interval]))"
    return f"sum by ({by}) ({series} < {before} or {series} - {before})"


def counted(counter: str, matchers: str, by: str, window: str) -> str:
    """Query the count within the window up to now, as alerts/llmhost.rules.yml counts."""
    series = f"{counter}{{{matchers}}}"
    return f"sum by ({by}) ({series} - min_over_time({series}[{window}]))"


def startable(matchers: str) -> str:
    """1, 0, NOT_APPLICABLE while the unit is up, UNDER_WAY while it starts or stops, or CANNOT_TELL.

    A unit that starts may wait in its guard for memory that never comes: it is not up.
    """

    def is_in(states: str) -> str:
        return f'llmhost_unit_active_state{{state=~"{states}", {matchers}}} == 1'

    under_way = (
        f"{is_in('activating|deactivating')}"
        f" unless on ({BY_UNIT}) llmhost_unit_sub_state{{{WAITING_TO_RESTART}, {matchers}}}"
    )
    return (
        f"max by ({BY_UNIT}) (llmhost_unit_startable{{{matchers}}})"
        f" or (0 * max by ({BY_UNIT}) ({is_in('active|reloading|refreshing')}) - {-NOT_APPLICABLE})"
        f" or (0 * max by ({BY_UNIT}) ({under_way}) - {-UNDER_WAY})"
        f" or (0 * max by ({BY_UNIT}) (llmhost_unit_info{{{matchers}}}) - {-CANNOT_TELL})"
    )


def stuck_memory(matchers: str) -> str:
    """Query bytes per GPU held by ended runs, orphans, processes that are gone, or nobody, above policy.resident.

    As instance_gpu:llmhost_gpu_stuck_memory_bytes:sum; absent where nothing is stuck.
    """
    by_gpu = f"{BY_HOST}, gpu, uuid"
    held = (
        f'llmhost_gpu_holder_memory_bytes{{kind=~"leftover|orphan|gone", {matchers}}}'
        f" or llmhost_gpu_unattributed_memory_bytes{{{matchers}}}"
    )
    return (
        f"(sum by ({by_gpu}) ({held})"
        f' unless on ({BY_HOST}, uuid) llmhost_gpu_info{{unified_memory="true", {matchers}}})'
        f" > on ({BY_HOST}) group_left () llmhost_policy_resident_bytes{{{matchers}}}"
    )


def memory_by_kind(matchers: str, by: str) -> str:
    """Query bytes by kind of holder, unattributed memory included."""
    unattributed = f"llmhost_gpu_unattributed_memory_bytes{{{matchers}}}"
    return (
        f"sum by ({by}, kind) (llmhost_gpu_holder_memory_bytes{{{matchers}}}"
        f' or label_replace({unattributed}, "kind", "unattributed", "", ""))'
    )


def collectors_failing(matchers: str) -> str:
    """Query collectors that fail and are not switched off."""
    return (
        f"llmhost_collector_success{{{matchers}}} == 0"
        f" unless on ({BY_HOST}, collector)"
        f' llmhost_collector_fault{{cause=~"disabled|released|no_device", {matchers}}}'
    )


def scraped(matchers: str) -> str:
    """Query `up` of each target of jobs that have, or had within a day, a llmhost exporter.

    With "All" jobs or hosts, the matchers alone would match other exporters' targets.
    """
    return f"(up{{{matchers}}} and on (cluster, job) last_over_time(llmhost_build_info{{{CLUSTERS}}}[1d]))"


def reading_state(matchers: str) -> str:
    """Query per host: 0 not scraped, 1 a collector fails or a GPU does not answer, 2 everything is read."""
    return (
        f"0 * max by ({BY_HOST}) ({scraped(matchers)} == 0)"
        f" or 0 * max by ({BY_HOST}) ({collectors_failing(matchers)} or llmhost_gpu_up{{{matchers}}} == 0) + 1"
        f" or 2 * max by ({BY_HOST}) ({scraped(matchers)})"
    )


def zero_where(all_of_them: str, found: str) -> str:
    """Count what is `found`; 0 where there are only other series, no data where there are none."""
    return f"count({found}) or 0 * count({all_of_them})"


def with_cluster(expr: str) -> str:
    """Give table rows the cluster "All" where they have none, so that their links choose "All".

    Grafana leaves the placeholder of a missing column in a link as it is.
    """
    return f'label_replace({expr}, "cluster", "All", "cluster", "")'


def or_cannot_tell(expr: str, rows: str) -> str:
    """Add CANNOT_TELL for rows that the query has no value of."""
    return f"{expr} or 0 * ({rows}) - {-CANNOT_TELL}"
