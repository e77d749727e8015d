"""Every metric, declared once: name, type, labels, help. docs/metrics.md is generated from this.

A family's label set never varies. Enum labels come in three modes: `all` values are always emitted (0 included),
`sparse` only what there is, `current` one series with value 1.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType


class Kind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


class Mode(StrEnum):
    ALL = "all"
    SPARSE = "sparse"
    CURRENT = "current"


class Section(StrEnum):
    GPUS = "GPUs"
    UNITS = "Units"
    SHM = "Shared memory and helper processes"
    ENGINES = "Engines"
    EXPORTER = "The exporter itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    kind: Kind
    section: Section
    labels: tuple[str, ...]
    help: str
    mode: Mode | None = None  # of the last label, where it is an enum


def _family(
    section: Section, name: str, help_: str, *labels: str, kind: Kind = Kind.GAUGE, mode: Mode | None = None
) -> Family:
    return Family(name=f"llmhost_{name}", kind=kind, section=section, labels=labels, help=help_, mode=mode)


def _gpu(name: str, help_: str, *labels: str, mode: Mode | None = None) -> Family:
    return _family(Section.GPUS, f"gpu_{name}", help_, "gpu", "uuid", *labels, mode=mode)


def _unit(name: str, help_: str, *labels: str, mode: Mode | None = None) -> Family:
    return _family(Section.UNITS, f"unit_{name}", help_, "unit", "manager", *labels, mode=mode)


def _shm(name: str, help_: str, *labels: str, mode: Mode | None = None) -> Family:
    return _family(Section.SHM, name, help_, *labels, mode=mode)


def _engine(name: str, help_: str, *labels: str, kind: Kind = Kind.GAUGE, mode: Mode | None = None) -> Family:
    mine = ("unit", "manager", "engine", "endpoint")
    return _family(Section.ENGINES, f"engine_{name}", help_, *mine, *labels, kind=kind, mode=mode)


def _told(name: str, help_: str, *labels: str, kind: Kind = Kind.GAUGE, mode: Mode | None = None) -> Family:
    return _engine(name, help_, "model", "engine_index", *labels, kind=kind, mode=mode)


def _own(name: str, help_: str, *labels: str, kind: Kind = Kind.GAUGE, mode: Mode | None = None) -> Family:
    return _family(Section.EXPORTER, name, help_, *labels, kind=kind, mode=mode)


GPU_INFO = _gpu(
    "info",
    "Facts of the GPU, value 1. memory_api v1: used includes reserved.",
    "name",
    "pci_bus_id",
    "driver_version",
    "parent_uuid",
    "unified_memory",
    "memory_api",
)
GPU_UP = _gpu("up", "1: the GPU answers. 0: it was seen since boot and is lost or failing.")
GPU_FAULT = _gpu("fault", "Why the GPU is not up, value 1.", "cause", mode=Mode.CURRENT)
GPU_MEMORY_TOTAL = _gpu("memory_total_bytes", "Memory of the GPU, reserved included.")
GPU_MEMORY_USED = _gpu(
    "memory_used_bytes", "Memory in use, without the driver's reserve (see memory_api of llmhost_gpu_info)."
)
GPU_MEMORY_FREE = _gpu("memory_free_bytes", "Memory that can be allocated.")
GPU_MEMORY_RESERVED = _gpu("memory_reserved_bytes", "Memory that the driver keeps for itself.")
GPU_HOLDER_MEMORY = _gpu(
    "holder_memory_bytes",
    "Memory held by processes, by systemd unit and kind of holder.",
    "unit",
    "manager",
    "kind",
    mode=Mode.SPARSE,
)
GPU_HOLDER_PROCESSES = _gpu(
    "holder_processes",
    "Processes that hold memory, by systemd unit and kind of holder.",
    "unit",
    "manager",
    "kind",
    mode=Mode.SPARSE,
)
GPU_UNATTRIBUTED = _gpu(
    "unattributed_memory_bytes",
    "Memory in use that no visible process holds: used less all holders, at least 0.",
)
GPU_UTILIZATION = _gpu("utilization_ratio", "Share of time in which a kernel ran, as NVML samples it, 0 to 1.")
GPU_TEMPERATURE = _gpu("temperature_celsius", "Temperature of the GPU.")
GPU_POWER = _gpu("power_watts", "Power draw of the GPU and its board.")
GPU_FABRIC_READY = _gpu(
    "fabric_ready", "1: registration with the NVLink fabric is complete. Absent where there is no fabric."
)
GPUS = _family(Section.GPUS, "gpus", "GPUs that the driver lists now, MIG instances not counted.")
GPUS_EXPECTED = _family(
    Section.GPUS, "gpus_expected", "GPUs that should be there: configured, else the most seen since boot."
)
DRIVER_MISMATCH = _family(
    Section.GPUS,
    "driver_mismatch",
    "1: the NVML library on disk and the loaded driver differ, so the next start of a GPU program will fail.",
)
NVML_STUCK_CALL = _family(
    Section.GPUS,
    "nvml_stuck_call_seconds",
    "For how long the driver has not come back from this call; gpu is empty for calls that are about no GPU.",
    "call",
    "gpu",
    mode=Mode.SPARSE,
)

UNIT_INFO = _unit(
    "info",
    "Facts of the unit, value 1. They change: join on unit and manager only.",
    "load_state",
    "unit_file_state",
    "service_type",
    "engine",
    "restart",
    "kill_mode",
    "guarded",
)
UNIT_ACTIVE_STATE = _unit("active_state", "ActiveState, as systemd spells it.", "state", mode=Mode.ALL)
UNIT_SUB_STATE = _unit("sub_state", "SubState, as systemd spells it, value 1.", "state", mode=Mode.CURRENT)
UNIT_RESULT = _unit("result", "Result of the last run, as systemd spells it, value 1.", "result", mode=Mode.CURRENT)
UNIT_WANTED = _unit(
    "wanted",
    "1: up, failing or waiting to restart, or enabled and not stopped by an operator since. "
    "0: stopped on purpose, or never meant to start.",
)
UNIT_NRESTARTS = _unit(
    "nrestarts",
    "NRestarts as systemd has it: resettable, blind to manual restarts, counts refused attempts.",
)
UNIT_STATE_CHANGE = _unit("state_change_timestamp_seconds", "When the unit last changed state.")
UNIT_EXEC_MAIN_STATUS = _unit(
    "exec_main_status",
    "Exit status, or signal number, of the main process of the last activation; absent until it has ended.",
)
UNIT_RESTART_DELAY = _unit("restart_delay_seconds", "RestartSec= of the unit; absent if infinite.")
UNIT_START_TIMEOUT = _unit(
    "start_timeout_seconds", "TimeoutStartSec= of the unit, for each of its commands; absent if infinite."
)
UNIT_STOP_TIMEOUT = _unit("stop_timeout_seconds", "TimeoutStopSec= of the unit; absent if infinite.")
UNIT_START_LIMIT_BURST = _unit("start_limit_burst", "StartLimitBurst= of the unit; 0 means no limit.")
UNIT_START_LIMIT_INTERVAL = _unit(
    "start_limit_interval_seconds", "StartLimitIntervalSec= of the unit; 0 means no limit."
)
UNIT_PROCESSES = _unit(
    "processes", "Living processes in the unit's cgroup by role in the engine.", "role", mode=Mode.ALL
)
UNIT_LEFTOVER_PROCESSES = _unit(
    "leftover_processes", "Processes of ended activations of the unit that are still alive."
)
UNIT_NEEDED = _unit(
    "gpu_memory_needed_bytes", "What a start of the unit will ask to be free on the GPU.", "gpu", "uuid"
)
UNIT_STARTABLE = _unit(
    "startable",
    "1: a start now would find the memory free, the fabric ready and its GPUs there. 0: it would be refused. "
    "Absent: the unit is up, or it cannot be told.",
)

SHM_SEGMENTS = _shm(
    "shm_segments",
    "Files in shared memory by kind and state, as of the last look at all processes.",
    "kind",
    "state",
    mode=Mode.ALL,
)
SHM_SEGMENT_BYTES = _shm("shm_segment_bytes", "Allocated size of them.", "kind", "state", mode=Mode.ALL)
SHM_SEGMENT_APPARENT = _shm(
    "shm_segment_apparent_bytes", "Size of them as `ls -l` shows it, often far more.", "kind", "state", mode=Mode.ALL
)
SHM_UNLISTED = _shm(
    "shm_unlisted_files", "Files that are too many to be looked at, or not readable: they are in no other series."
)
SHM_SIZE = _shm("shm_size_bytes", "Size of the tmpfs.")
SHM_USED = _shm("shm_used_bytes", "Used in the tmpfs, deleted files that are held included.")
SHM_HIDDEN = _shm("shm_hidden_bytes", "Used less the files that are listed: deleted, and still held.")
SHM_INODES = _shm("shm_inodes", "Files that the tmpfs can have.")
SHM_INODES_USED = _shm("shm_inodes_used", "Files that the tmpfs has, deleted ones that are held included.")
RESOURCE_TRACKERS = _shm("resource_trackers", "Python's resource trackers.", "state", mode=Mode.ALL)
ORPHAN_PROCESSES = _shm(
    "orphan_processes",
    'Engine processes that outlived what they belong to; one series of "none" and 0 where there are none. Absent while '
    "there may be some that the exporter has not watched for policy.orphan_grace yet.",
    "engine",
    "role",
    mode=Mode.SPARSE,
)
ORPHAN_OLDEST = _shm("orphan_oldest_seconds", "For how long the oldest orphan has been one; absent if there is none.")

ENGINE_UP = _engine("up", "1: its metrics were read. 0: not. Absent for a server that has none by design.")
ENGINE_FAULT = _engine("fault", "Why they were not read, value 1.", "cause", mode=Mode.CURRENT)
ENGINE_GENERATION_TOKENS = _told(
    "generation_tokens_total", "Tokens generated, as the engine counts them.", kind=Kind.COUNTER
)
ENGINE_PROMPT_TOKENS = _told("prompt_tokens_total", "Prompt tokens, as the engine counts them.", kind=Kind.COUNTER)
ENGINE_REQUESTS_RUNNING = _told("requests_running", "Requests being worked on.")
ENGINE_REQUESTS_WAITING = _told("requests_waiting", "Requests that wait.")
ENGINE_KV_CACHE = _told("kv_cache_usage_ratio", "Share of the KV cache in use, 0 to 1.")
ENGINE_PREEMPTIONS = _told("preemptions_total", "Requests that were set back to waiting.", kind=Kind.COUNTER)
ENGINE_FINISHED = _told(
    "requests_finished_total", "Requests that ended, by reason.", "reason", kind=Kind.COUNTER, mode=Mode.SPARSE
)
ENGINE_STEPS = _told("steps_total", "Iterations of the engine loop, where the engine tells.", kind=Kind.COUNTER)
ENGINE_READY = _engine(
    "ready_seconds",
    "From the unit's start to the engine's first answer, as noticed by a scrape; absent unless the start was seen.",
)
UNIT_READY_BUDGET = _family(
    Section.ENGINES,
    "unit_ready_budget_seconds",
    "How long a start may take: 3 times the longest of the last ten that were seen, never less than policy.ready.",
    "unit",
    "manager",
)
ENGINE_SLEEPING = _told("sleeping", "1: the engine is put to sleep.")

COLLECTOR_SUCCESS = _own("collector_success", "1: the collector read everything it is there for.", "collector")
COLLECTOR_FAULT = _own("collector_fault", "Why the collector failed, value 1.", "collector", "cause", mode=Mode.CURRENT)
COLLECTOR_DURATION = _own("collector_duration_seconds", "Time of the collector's last attempt.", "collector")
COLLECTOR_LAST_SUCCESS = _own(
    "collector_last_success_timestamp_seconds",
    "When the collector last succeeded; absent until it has.",
    "collector",
)
COLLECTOR_FAILURES = _own(
    "collector_failures_total",
    "Failed attempts of the collector since the exporter started.",
    "collector",
    "cause",
    kind=Kind.COUNTER,
    mode=Mode.SPARSE,
)
CONFIG_RELOAD_SUCCESS = _own(
    "config_reload_success", "1: the last reload of the config took effect. 0: the file is bad, the old one runs on."
)
CONFIG_LAST_SUCCESS = _own("config_reload_last_success_timestamp_seconds", "When the config in force was loaded.")
UNREADABLE_PROCESSES = _own("unreadable_processes", "Processes of which something could not be read.")
DROPPED_SERIES = _own(
    "dropped_series_total",
    "Series left out because their family was over its bound.",
    "family",
    kind=Kind.COUNTER,
    mode=Mode.SPARSE,
)
RESYNCS = _own(
    "resyncs_total",
    "Times that all unit states were read anew because the bus or systemd came back or reloaded.",
    "reason",
    kind=Kind.COUNTER,
    mode=Mode.SPARSE,
)
POLICY_RESIDENT = _own(
    "policy_resident_bytes", "policy.resident: memory of others on a GPU that is too much for a clean start."
)
POLICY_SEGMENT_GRACE = _own(
    "policy_segment_grace_seconds", "policy.segment_grace: a segment is stale when unheld for this long."
)
POLICY_ORPHAN_GRACE = _own(
    "policy_orphan_grace_seconds", "policy.orphan_grace: a process is an orphan when in that condition for this long."
)
POLICY_UTILIZATION = _own(
    "policy_utilization_ratio", "policy.utilization: what vLLM asks for when its arguments do not say."
)
POLICY_READY = _own("policy_ready_seconds", "policy.ready: a load may always take this long.")
BUILD_INFO = _own("build_info", "The exporter's version, value 1.", "version", "revision", "python_version")

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {value.name: value for value in tuple(globals().values()) if isinstance(value, Family)}
)
