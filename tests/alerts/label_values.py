"""The values that the enums among labels have, so that no rule and no test asks for one that never comes."""

import re
from collections.abc import Mapping

from llmhost.derive.attribution import HolderKind
from llmhost.derive.segments import SegmentState
from llmhost.derive.trackers import TrackerState
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.history.unit_history import UNATTRIBUTED, Trigger, Verdict
from llmhost.model.process import Role
from llmhost.model.reading import Cause
from llmhost.model.segment import SegmentKind
from llmhost.model.unit import ACTIVE_STATES, SERVICE_RESULTS

# systemd's src/basic/unit-def.c, service_state_table of versions 249 to 257.
SUB_STATES = frozenset(
    re.findall(
        r"\S+",
        "dead condition start-pre start start-post running exited reload reload-signal reload-notify reload-post "
        "refresh-extensions refresh-credentials mounting stop stop-watchdog stop-sigterm stop-sigkill stop-post "
        "final-watchdog final-sigterm final-sigkill failed dead-before-auto-restart failed-before-auto-restart "
        "dead-resources-pinned auto-restart auto-restart-queued cleaning",
    )
)
# org.freedesktop.systemd1(5), LoadState, and ours.
LOAD_STATES = frozenset({"stub", "loaded", "not-found", "bad-setting", "error", "merged", "masked"})
COLLECTORS = frozenset({"nvml", "procfs", "systemd", "guard", "shm", "engine"})
ENGINES = frozenset({"none", "", "vllm", "sglang", "llamacpp", "tgi", "ollama", "triton"})
_BOOLEANS = frozenset({"true", "false"})

_ROLES = frozenset(Role) | {"none"}
_CAUSES = frozenset(Cause)
_VERDICTS_OF_STARTS, _VERDICTS_OF_GUARD = frozenset(Verdict), frozenset(GuardVerdict)
_HOLDERS, _SEGMENTS = frozenset(HolderKind), frozenset(SegmentKind)

# Beginning of the metric, label → values. The first that fits counts.
VALUES: tuple[tuple[str, str, frozenset[str]], ...] = (
    ("llmhost_unit_active_state", "state", frozenset(ACTIVE_STATES)),
    ("llmhost_unit_sub_state", "state", SUB_STATES),
    ("llmhost_unit_state_seconds_total", "state", frozenset(ACTIVE_STATES) | {"auto_restart", "start_pre"}),
    ("llmhost_shm_segment", "state", frozenset(SegmentState)),
    ("llmhost_shm_segment", "kind", _SEGMENTS),
    ("llmhost_resource_trackers", "state", frozenset(TrackerState)),
    ("llmhost_unit_starts_total", "trigger", frozenset(Trigger)),
    ("llmhost_unit_starts_total", "verdict", _VERDICTS_OF_STARTS),
    ("llmhost_guard_", "verdict", _VERDICTS_OF_GUARD),
    ("llmhost_unit_last_start_in_the_way_bytes", "kind", _HOLDERS | {UNATTRIBUTED}),
    ("llmhost_gpu_holder_", "kind", _HOLDERS),
    ("llmhost_unit_failures_total", "result", frozenset(SERVICE_RESULTS) - {"success"}),
    ("llmhost_unit_result", "result", frozenset(SERVICE_RESULTS)),
    ("llmhost_unit_info", "load_state", LOAD_STATES),
    ("llmhost_unit_info", "engine", ENGINES),
    ("llmhost_orphan_processes", "engine", ENGINES),
    ("llmhost_gpu_info", "unified_memory", _BOOLEANS),
    ("llmhost_unit_info", "guarded", _BOOLEANS),
    ("llmhost_", "collector", COLLECTORS),
    ("llmhost_", "cause", _CAUSES),
    ("llmhost_", "role", _ROLES),
    ("llmhost_", "manager", frozenset({"system", ""})),
)


def values_of(metric: str, label: str) -> frozenset[str] | None:
    """Give the values that this label of this metric has; None where it is no enum."""
    return next((values for start, name, values in VALUES if metric.startswith(start) and name == label), None)


def unknown_values(metric: str, matchers: Mapping[str, tuple[str, str]]) -> list[str]:
    """Name what no series has of these matchers, label → (operator, text); of a pattern each alternative by itself.

    A label that must be empty, or not, asks for no value.
    """
    found = []
    for label, (operator, text) in matchers.items():
        values = values_of(metric, label)
        if values is None or text in {"", "x"}:
            continue
        for alternative in _alternatives(text) if "~" in operator else [text]:
            known = (
                any(re.fullmatch(alternative, value) for value in values) if "~" in operator else alternative in values
            )
            if not known:
                found.append(f"value {alternative} of {label} of {metric}")
    return found


def _alternatives(pattern: str) -> list[str]:
    """Split at the top level: `a.*|(b|c)d` is `a.*` and `(b|c)d`."""
    parts, depth = [""], 0
    for character in pattern:
        depth += {"(": 1, ")": -1}.get(character, 0)
        if character == "|" and not depth:
            parts.append("")
        else:
            parts[-1] += character
    return parts
