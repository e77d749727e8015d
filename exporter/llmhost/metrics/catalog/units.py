"""Units as they are now."""

from llmhost.metrics.catalog.declare import Mode, of_unit

UNIT_INFO = of_unit(
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
UNIT_ACTIVE_STATE = of_unit("active_state", "ActiveState, as systemd spells it.", "state", mode=Mode.ALL)
UNIT_SUB_STATE = of_unit("sub_state", "SubState, as systemd spells it, value 1.", "state", mode=Mode.CURRENT)
UNIT_RESULT = of_unit("result", "Result of the last run, as systemd spells it, value 1.", "result", mode=Mode.CURRENT)
UNIT_WANTED = of_unit(
    "wanted",
    "1: up, failing or waiting to restart, or enabled and not stopped by an operator since. "
    "0: stopped on purpose, or never meant to start.",
)
UNIT_NRESTARTS = of_unit(
    "nrestarts",
    "NRestarts as systemd has it: resettable, blind to manual restarts, counts refused attempts.",
)
UNIT_STATE_CHANGE = of_unit("state_change_timestamp_seconds", "When the unit last changed state.")
UNIT_EXEC_MAIN_STATUS = of_unit(
    "exec_main_status",
    "Exit status, or signal number, of the main process of the last activation; absent until it has ended.",
)
UNIT_RESTART_DELAY = of_unit("restart_delay_seconds", "RestartSec= of the unit; absent if infinite.")
UNIT_START_TIMEOUT = of_unit(
    "start_timeout_seconds", "TimeoutStartSec= of the unit, for each of its commands; absent if infinite."
)
UNIT_STOP_TIMEOUT = of_unit("stop_timeout_seconds", "TimeoutStopSec= of the unit; absent if infinite.")
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
    "gpu_memory_needed_bytes", "What a start of the unit will ask to be free on the GPU.", "gpu", "uuid"
)
UNIT_STARTABLE = of_unit(
    "startable",
    "1: a start now would find the memory free, the fabric ready and its GPUs there. 0: it would be refused. "
    "Absent: the unit is up, or it cannot be told.",
)
