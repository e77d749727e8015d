"""Units as they are now."""

from llmhost.metrics.catalog.declare import Mode, of_unit

UNIT_INFO = of_unit(
    "info",
    "Properties of the unit, value 1. They change: join on unit and manager only.",
    "load_state",
    "unit_file_state",
    "service_type",
    "engine",
    "restart",
    "kill_mode",
    "guarded",
)
UNIT_ACTIVE_STATE = of_unit("active_state", "ActiveState as in systemd.", "state", mode=Mode.ALL)
UNIT_SUB_STATE = of_unit("sub_state", "SubState as in systemd, value 1.", "state", mode=Mode.CURRENT)
UNIT_RESULT = of_unit("result", "Result of the last run as in systemd, value 1.", "result", mode=Mode.CURRENT)
UNIT_WANTED = of_unit(
    "wanted",
    "1: the unit should run: up, failing, waiting to restart, or wanted by others or enabled, and not stopped by an "
    "operator. 0: stopped on purpose, skipped for a condition, or wanted by nothing that is up.",
)
UNIT_NRESTARTS = of_unit(
    "nrestarts", "NRestarts as in systemd: it can be reset, excludes manual restarts, and includes refused attempts."
)
UNIT_STATE_CHANGE = of_unit("state_change_timestamp_seconds", "Time of the last state change.")
UNIT_EXEC_MAIN_STATUS = of_unit(
    "exec_main_status",
    "Exit status or signal number of the main process of the last activation. Absent until it has ended.",
)
UNIT_RESTART_DELAY = of_unit("restart_delay_seconds", "RestartSec= of the unit. Absent if infinite.")
UNIT_START_TIMEOUT = of_unit(
    "start_timeout_seconds", "TimeoutStartSec= of the unit, for each of its commands. Absent if infinite."
)
UNIT_STOP_TIMEOUT = of_unit("stop_timeout_seconds", "TimeoutStopSec= of the unit. Absent if infinite.")
UNIT_START_LIMIT_BURST = of_unit("start_limit_burst", "StartLimitBurst= of the unit; 0 means no limit.")
UNIT_START_LIMIT_INTERVAL = of_unit(
    "start_limit_interval_seconds", "StartLimitIntervalSec= of the unit; 0 means no limit."
)
UNIT_PROCESSES = of_unit(
    "processes", "Living processes in the unit's cgroup by role in the engine.", "role", mode=Mode.ALL
)
UNIT_LEFTOVER_PROCESSES = of_unit(
    "leftover_processes", "Processes of ended activations of the unit that are still alive."
)
UNIT_NEEDED = of_unit(
    "gpu_memory_needed_bytes", "Free memory that a start of the unit needs on the GPU.", "gpu", "uuid"
)
UNIT_STARTABLE = of_unit(
    "startable",
    "1: a start now would find enough free memory, a ready fabric and all its GPUs. 0: it would not, or its start "
    "limit refuses it. Absent: the unit is up, or this is unknown.",
)
