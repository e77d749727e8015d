"""Service units, as systemd shows them. Times in seconds; names and values as systemd spells them."""

from dataclasses import dataclass, field

from llmhost.model.ids import UnitId
from llmhost.model.sandbox import Limits, Sandbox

# org.freedesktop.systemd1(5), Result of a service.
SERVICE_RESULTS = (
    "success",
    "resources",
    "protocol",
    "timeout",
    "exit-code",
    "signal",
    "core-dump",
    "watchdog",
    "start-limit-hit",
    "oom-kill",
    "exec-condition",
)
# systemd.unit(5), org.freedesktop.systemd1(5); `refreshing` since 256.
ACTIVE_STATES = ("active", "reloading", "inactive", "failed", "activating", "deactivating", "maintenance", "refreshing")


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitSettings:
    """Settings of the unit's files; constant until the next daemon-reload. None: infinite, or this systemd has none."""

    service_type: str = ""
    restart: str = ""
    restart_mode: str = ""  # RestartMode=: normal or direct; "" up to systemd 253, which has none
    kill_mode: str = ""
    restart_delay_seconds: float | None = None
    restart_steps: int = 0  # RestartSteps=: so many restarts until the delay is the longest; 0: it never grows
    restart_longest_delay_seconds: float | None = None  # RestartMaxDelaySec=
    start_timeout_seconds: float | None = None
    stop_timeout_seconds: float | None = None
    start_limit_burst: int | None = None
    start_limit_interval_seconds: float | None = None
    exec_start: tuple[tuple[str, ...], ...] = ()  # argv per ExecStart=, specifiers expanded, variables not
    exec_start_pre: tuple[tuple[str, ...], ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # Environment= alone
    environment_files: tuple[str, ...] = ()  # EnvironmentFile=, whose content overrides Environment= and is not read
    send_sigkill: bool | None = None  # SendSIGKILL=: what survives TimeoutStopSec= is killed
    notify_access: str = ""  # NotifyAccess=: whose messages systemd takes
    success_exit_statuses: tuple[int, ...] = ()  # SuccessExitStatus=: they count as 0 does, of ExecStartPre= too
    success_signals: tuple[int, ...] = ()  # and deaths by these signals
    after: tuple[str, ...] = ()  # After=, with what systemd adds by itself; by name
    pass_environment: tuple[str, ...] = ()  # PassEnvironment=: variables that come from the manager's own
    unset_environment: tuple[str, ...] = ()  # UnsetEnvironment=: names, or NAME=value
    pam_name: str = ""  # PAMName=: its modules may set variables
    # What systemd gives to all units, so that it is none of this one's own; None: not read.
    manager_environment: tuple[tuple[str, str], ...] | None = field(default=None, compare=False)
    exec_start_pre_prefixes: tuple[str, ...] = ()  # of each ExecStartPre=, "+" among them; () where systemd has none
    working_directory: str = ""  # WorkingDirectory=, with "~" for the home of User= and "!" for one that may be missing
    own_directories: tuple[str, ...] = ()  # RuntimeDirectory= and its like, which systemd gives to User=
    sandbox: Sandbox = field(default_factory=Sandbox)
    limits: Limits = field(default_factory=Limits)


@dataclass(frozen=True, slots=True, kw_only=True)
class Relative:
    """Another unit, of any type, that starts a service, stops it or wants it to run."""

    name: str
    # The property of the service that names it, such as WantedBy; of BindsTo, Requires and PartOf also that of a unit
    # between the two, whose stop stops the service.
    relation: str
    active_state: str  # "" where nothing is known of its state
    sub_state: str
    job: int = 0
    state_change_monotonic: float | None = None
    active_enter_monotonic: float | None = None
    inactive_enter_monotonic: float | None = None
    asked_to_end: bool | None = None  # a job was there when it last went down; None while it is up, or if not seen


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    """One service.

    Times named `_at` are on CLOCK_REALTIME since the epoch, `_monotonic` ones on CLOCK_MONOTONIC; None where unset.
    """

    id: UnitId
    load_state: str  # loaded, not-found, masked, bad-setting, …; stub: a unit file that systemd has not loaded
    unit_file_state: str  # enabled, disabled, static, …; "" where systemd says nothing
    active_state: str
    sub_state: str
    result: str = ""
    nrestarts: int | None = None
    invocation_id: str = ""
    main_pid: int = 0
    control_pid: int = 0
    job: int = 0  # of systemd's queue, that waits or runs for this unit; 0: none
    exec_main_status: int | None = None  # None until a main process of this activation has ended
    state_change_at: float | None = None
    state_change_monotonic: float | None = None
    active_enter_monotonic: float | None = None
    inactive_exit_monotonic: float | None = None
    inactive_enter_monotonic: float | None = None
    active_exit_monotonic: float | None = None
    condition_monotonic: float | None = None
    # At the last start attempt: where it is not, systemd skips that. None: no attempt.
    condition_met: bool | None = None
    exec_main_start_monotonic: float | None = None
    exec_main_exit_monotonic: float | None = None
    # Of RestartMode=direct alone, whose further attempts leave the times above as they are (see derive/activation):
    first_process_monotonic: float | None = None  # start of the first process of this start attempt
    begun_after_monotonic: float | None = None  # between the attempt before and this one; as its begin was seen
    settings: UnitSettings | None = None  # None while systemd has not loaded the unit
    relatives: tuple[Relative, ...] = field(default=(), compare=False)
    aliases: tuple[str, ...] = ()  # its other names, as far as they are known

    @property
    def names(self) -> tuple[str, ...]:
        return (self.id.name, *self.aliases)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsReport:
    systemd_version: str
    units: tuple[Unit, ...]  # watched ones, by id
    resyncs: tuple[tuple[str, int], ...] = ()  # reason → times, since this exporter started
    boot_times: tuple[tuple[float, float], ...] = ()
    """Systemd's begin and the end of the boot, each in seconds since the epoch and on CLOCK_MONOTONIC."""
