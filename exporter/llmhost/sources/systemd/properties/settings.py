"""Settings of a service, from its properties."""

from collections.abc import Mapping

from llmhost.model.sandbox import Limits, Sandbox
from llmhost.model.unit import UnitSettings
from llmhost.sources.systemd.properties.typed_properties import TypedProperties, names_read

# systemd.exec(5), RuntimeDirectory=; ConfigurationDirectory= stays root's.
_OWN: Mapping[str, str] = {
    "RuntimeDirectory": "/run",
    "StateDirectory": "/var/lib",
    "CacheDirectory": "/var/cache",
    "LogsDirectory": "/var/log",
}


def parse_settings(properties: TypedProperties) -> UnitSettings:
    """Read the settings of a loaded unit. A 0 in the start limit stays 0: there is none then (systemd.unit(5))."""
    success_exit_statuses, success_signals = properties.exit_statuses("SuccessExitStatus")
    return UnitSettings(
        service_type=properties.text("Type"),
        restart=properties.text("Restart"),
        restart_mode=properties.text("RestartMode"),
        kill_mode=properties.text("KillMode"),
        restart_delay_seconds=properties.span_seconds("RestartUSec"),
        restart_steps=properties.number("RestartSteps") or 0,
        restart_longest_delay_seconds=properties.span_seconds("RestartMaxDelayUSec"),
        start_timeout_seconds=properties.span_seconds("TimeoutStartUSec"),
        stop_timeout_seconds=properties.span_seconds("TimeoutStopUSec"),
        start_limit_burst=properties.number("StartLimitBurst"),
        start_limit_interval_seconds=properties.span_seconds("StartLimitIntervalUSec"),
        exec_start=properties.commands("ExecStart"),
        exec_start_pre=properties.commands("ExecStartPre"),
        send_sigkill=properties.flag("SendSIGKILL"),
        notify_access=properties.text("NotifyAccess"),
        success_exit_statuses=success_exit_statuses,
        success_signals=success_signals,
        after=tuple(sorted(properties.texts("After"))),  # systemd gives them in no order
        environment=properties.environment(),
        environment_files=properties.members("EnvironmentFiles"),
        pass_environment=properties.texts("PassEnvironment"),
        unset_environment=properties.texts("UnsetEnvironment"),
        pam_name=properties.text("PAMName"),
        exec_start_pre_prefixes=properties.prefixes("ExecStartPreEx"),
        working_directory=properties.text("WorkingDirectory"),
        own_directories=tuple(f"{top}/{name}" for kind, top in _OWN.items() for name in properties.texts(kind)),
        sandbox=_sandbox(properties),
        limits=Limits(
            open_files=properties.limit("LimitNOFILE"),
            memory_bytes=properties.limit("MemoryMax"),
        ),
    )


def _sandbox(properties: TypedProperties) -> Sandbox:
    allowed, families = properties.allowed_texts("RestrictAddressFamilies")
    return Sandbox(
        user=properties.text("User"),
        dynamic_user=properties.flag("DynamicUser") is True,
        private_devices=properties.flag("PrivateDevices") is True,
        device_policy=properties.text("DevicePolicy"),
        device_allow=properties.members("DeviceAllow"),
        protect_proc=properties.text("ProtectProc"),
        proc_subset=properties.text("ProcSubset"),
        protect_system=properties.text("ProtectSystem"),
        protect_control_groups=properties.text("ProtectControlGroupsEx"),
        private_pids=properties.text("PrivatePIDs"),
        read_write_paths=properties.texts("ReadWritePaths"),
        address_families=families if allowed or families else None,  # no names denied: the default
        families_are_allowed=allowed,
        hidden_paths=(*properties.texts("InaccessiblePaths"), *properties.members("TemporaryFileSystem")),
        root=properties.text("RootDirectory") or properties.text("RootImage"),
        bound_paths=(*properties.members("BindPaths", 1), *properties.members("BindReadOnlyPaths", 1)),
        capabilities=properties.number("CapabilityBoundingSet"),
        ambient_capabilities=properties.number("AmbientCapabilities") or 0,
    )


SETTINGS = names_read(parse_settings)
