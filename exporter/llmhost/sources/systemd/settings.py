"""What a service's files say, from the properties that D-Bus gives of them. Pure."""

from llmhost.model.sandbox import Limits, Sandbox
from llmhost.model.unit import UnitSettings
from llmhost.sources.systemd.checked import Checked

SETTINGS = frozenset(
    {
        "Type",
        "Restart",
        "KillMode",
        "SendSIGKILL",
        "After",
        "RestartUSec",
        "TimeoutStartUSec",
        "TimeoutStopUSec",
        "StartLimitBurst",
        "StartLimitIntervalUSec",
        "ExecStart",
        "ExecStartPre",
        "ExecStartPreEx",
        "Environment",
        "EnvironmentFiles",
        "PassEnvironment",
        "User",
        "DynamicUser",
        "PrivateDevices",
        "DevicePolicy",
        "DeviceAllow",
        "ProtectProc",
        "ProcSubset",
        "ProtectSystem",
        "ReadWritePaths",
        "RestrictAddressFamilies",
        "InaccessiblePaths",
        "TemporaryFileSystem",
        "RootDirectory",
        "RootImage",
        "BindPaths",
        "BindReadOnlyPaths",
        "CapabilityBoundingSet",
        "AmbientCapabilities",
        "LimitNOFILE",
        "LimitMEMLOCK",
        "LimitCORESoft",
        "MemoryMax",
        "TasksMax",
    }
)


def parse_settings(checked: Checked) -> UnitSettings:
    """Interval and burst as systemd has them: a 0 in either means that there is no start limit (systemd.unit(5))."""
    return UnitSettings(
        service_type=checked.text("Type"),
        restart=checked.text("Restart"),
        kill_mode=checked.text("KillMode"),
        restart_delay_seconds=checked.span_seconds("RestartUSec"),
        start_timeout_seconds=checked.span_seconds("TimeoutStartUSec"),
        stop_timeout_seconds=checked.span_seconds("TimeoutStopUSec"),
        start_limit_burst=checked.number("StartLimitBurst"),
        start_limit_interval_seconds=checked.span_seconds("StartLimitIntervalUSec"),
        exec_start=checked.commands("ExecStart"),
        exec_start_pre=checked.commands("ExecStartPre"),
        send_sigkill=checked.flag("SendSIGKILL"),
        after=tuple(sorted(checked.texts("After"))),  # systemd gives them in no order
        environment=checked.environment(),
        environment_files=checked.environment_files(),
        pass_environment=checked.texts("PassEnvironment"),
        exec_start_pre_prefixes=checked.prefixes("ExecStartPreEx"),
        sandbox=_sandbox(checked),
        limits=Limits(
            open_files=checked.limit("LimitNOFILE"),
            locked_memory_bytes=checked.limit("LimitMEMLOCK"),
            core_bytes=checked.limit("LimitCORESoft"),
            memory_bytes=checked.limit("MemoryMax"),
            tasks=checked.limit("TasksMax"),
        ),
    )


def _sandbox(checked: Checked) -> Sandbox:
    allowed, families = checked.allowed_texts("RestrictAddressFamilies")
    return Sandbox(
        user=checked.text("User"),
        dynamic_user=checked.flag("DynamicUser") is True,
        private_devices=checked.flag("PrivateDevices") is True,
        device_policy=checked.text("DevicePolicy"),
        device_allow=checked.members("DeviceAllow"),
        protect_proc=checked.text("ProtectProc"),
        proc_subset=checked.text("ProcSubset"),
        protect_system=checked.text("ProtectSystem"),
        read_write_paths=checked.texts("ReadWritePaths"),
        address_families=families if allowed or families else None,  # as it is where nothing is said: none is denied
        families_are_allowed=allowed,
        hidden_paths=(*checked.texts("InaccessiblePaths"), *checked.members("TemporaryFileSystem")),
        root=checked.text("RootDirectory") or checked.text("RootImage"),
        bound_paths=(*checked.members("BindPaths", 1), *checked.members("BindReadOnlyPaths", 1)),
        capabilities=checked.number("CapabilityBoundingSet"),
        ambient_capabilities=checked.number("AmbientCapabilities") or 0,
    )
