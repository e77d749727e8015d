"""Recorded series (alerts/llmhost.recording.rules.yml) that the board of a fleet asks for, of the chosen clusters."""

from grafana.kit.queries import CLUSTERS

_OF_THEM = f"{{{CLUSTERS}}}"

BLIND = f"instance:llmhost_blind:bool{_OF_THEM}"
STATE = f"instance_unit:llmhost_unit_state:code{_OF_THEM}"
LOST = f"instance_unit:llmhost_unit_lost:bool{_OF_THEM}"
AUTOMATIC = f"instance_unit:llmhost_unit_automatic_starts:delta1h{_OF_THEM}"
RESIDENT = f"instance_unit:llmhost_unit_automatic_resident_starts:delta1h{_OF_THEM}"
FAILURES = f"instance_unit:llmhost_unit_failures:delta1h{_OF_THEM}"
STUCK = f"instance_gpu:llmhost_gpu_stuck_memory_bytes:sum{_OF_THEM}"
BY_KIND = f"instance_kind:llmhost_gpu_holder_memory_bytes:sum{_OF_THEM}"
TOTAL = f"instance:llmhost_gpu_memory_total_bytes:sum{_OF_THEM}"

BLIND_BY_CLUSTER = f"cluster:llmhost_blind:sum{_OF_THEM}"
WANTED_BY_CLUSTER = f"cluster:llmhost_unit_wanted:sum{_OF_THEM}"
LOST_BY_CLUSTER = f"cluster:llmhost_unit_lost:sum{_OF_THEM}"
STUCK_BY_CLUSTER = f"cluster:llmhost_gpu_stuck_memory_bytes:sum{_OF_THEM}"
STARTS_BY_CLUSTER = f"cluster:llmhost_unit_automatic_starts:delta1h{_OF_THEM}"
GENERATED = f"cluster_model:llmhost_engine_generation_tokens:rate5m{_OF_THEM}"
PROMPT = f"cluster_model:llmhost_engine_prompt_tokens:rate5m{_OF_THEM}"

# Seconds of the time shown for which each sample stands: where rules have been evaluated for a part of it alone, of
# that part.
_SECONDS_OF_A_SAMPLE = (
    f"scalar((time() - min(min_over_time(timestamp({BLIND_BY_CLUSTER})[$__range:1m])))"
    f" / max(count_over_time({BLIND_BY_CLUSTER}[$__range])))"
)
LOOPS = f"{AUTOMATIC} >= 2"


def stuck_by(labels: str) -> str:
    """Bytes that are stuck, 0 only where hosts tell of their GPUs' memory: of unified memory, say, they do not."""
    told = f'instance_kind:llmhost_gpu_holder_memory_bytes:sum{{kind="unattributed", {CLUSTERS}}}'
    return f"sum by ({labels}) ({STUCK_BY_CLUSTER}) or 0 * sum by ({labels}) ({told})"


def hours(recorded: str) -> str:
    """Hours of the time shown for which it was recorded as 1, or as a number of such.

    A time for which this series was not recorded and others were adds none; avg_over_time would have it be like the
    rest.
    """
    return f"sum_over_time({recorded}[$__range]) * {_SECONDS_OF_A_SAMPLE} / 3600"
