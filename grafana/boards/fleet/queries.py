"""Queries of the fleet board: recorded series (alerts/llmhost.recording.rules.yml) of the chosen clusters."""

from grafana.kit.queries import CLUSTERS

_CHOSEN = f"{{{CLUSTERS}}}"

BLIND = f"instance:llmhost_blind:bool{_CHOSEN}"
STATE = f"instance_unit:llmhost_unit_state:code{_CHOSEN}"
LOST = f"instance_unit:llmhost_unit_lost:bool{_CHOSEN}"
AUTOMATIC = f"instance_unit:llmhost_unit_automatic_starts:delta1h{_CHOSEN}"
RESIDENT = f"instance_unit:llmhost_unit_automatic_resident_starts:delta1h{_CHOSEN}"
FAILURES = f"instance_unit:llmhost_unit_failures:delta1h{_CHOSEN}"
STUCK = f"instance_gpu:llmhost_gpu_stuck_memory_bytes:sum{_CHOSEN}"
BY_KIND = f"instance_kind:llmhost_gpu_holder_memory_bytes:sum{_CHOSEN}"
TOTAL = f"instance:llmhost_gpu_memory_total_bytes:sum{_CHOSEN}"

BLIND_BY_CLUSTER = f"cluster:llmhost_blind:sum{_CHOSEN}"
WANTED_BY_CLUSTER = f"cluster:llmhost_unit_wanted:sum{_CHOSEN}"
LOST_BY_CLUSTER = f"cluster:llmhost_unit_lost:sum{_CHOSEN}"
STUCK_BY_CLUSTER = f"cluster:llmhost_gpu_stuck_memory_bytes:sum{_CHOSEN}"
STARTS_BY_CLUSTER = f"cluster:llmhost_unit_automatic_starts:delta1h{_CHOSEN}"
GENERATED = f"cluster_model:llmhost_engine_generation_tokens:rate5m{_CHOSEN}"
PROMPT = f"cluster_model:llmhost_engine_prompt_tokens:rate5m{_CHOSEN}"

# Seconds that each sample stands for: of the time shown, or of the part of it for which rules were evaluated.
_SECONDS_OF_A_SAMPLE = (
    f"scalar((time() - min(min_over_time(timestamp({BLIND_BY_CLUSTER})[$__range:1m])))"
    f" / max(count_over_time({BLIND_BY_CLUSTER}[$__range])))"
)
LOOPS = f"{AUTOMATIC} >= 2"


def stuck_by(labels: str) -> str:
    """Query stuck bytes; 0 only where hosts export their GPUs' memory, which hosts with unified memory do not."""
    known = f'instance_kind:llmhost_gpu_holder_memory_bytes:sum{{kind="unattributed", {CLUSTERS}}}'
    return f"sum by ({labels}) ({STUCK_BY_CLUSTER}) or 0 * sum by ({labels}) ({known})"


def hours(recorded: str) -> str:
    """Query the hours of the time shown for which the series was 1; a greater value counts several times.

    Time for which this series was not recorded, and others were, counts as none: avg_over_time would extrapolate.
    """
    return f"sum_over_time({recorded}[$__range]) * {_SECONDS_OF_A_SAMPLE} / 3600"
