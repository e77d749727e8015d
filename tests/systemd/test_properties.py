"""Properties turned into units: by hand, from the documented types."""

from typing import Any

import pytest

from llmhost.model.ids import UnitId
from llmhost.model.sandbox import Limits, Sandbox
from llmhost.model.unit import Unit, UnitSettings
from llmhost.sources.systemd.properties.typed_properties import INFINITY
from llmhost.sources.systemd.properties.unit import UnreadableUnitError, exec_start, parse_unit, unloaded_unit

MINIMAL: dict[str, Any] = {
    "Id": "vllm.service",
    "LoadState": "loaded",
    "ActiveState": "active",
    "SubState": "running",
}


def command(*argv: str) -> list[Any]:
    return [argv[0], list(argv), False, 0, 0, 0, 0, 0, 0, 0]


def settings(**properties: object) -> UnitSettings:
    parsed = parse_unit({**MINIMAL, **properties}).unit.settings
    assert parsed is not None
    return parsed


def test_every_property_finds_its_field() -> None:
    parsed = parse_unit(
        {
            "Id": "vllm@a.service",
            "LoadState": "loaded",
            "UnitFileState": "enabled",
            "ActiveState": "activating",
            "SubState": "auto-restart",
            "Result": "exit-code",
            "NRestarts": 6,
            "InvocationID": bytes.fromhex("0123456789abcdef0123456789abcdef"),
            "MainPID": 4711,
            "ControlPID": 4712,
            "ExecMainCode": 1,
            "ExecMainStatus": 137,
            "StateChangeTimestamp": 1_700_000_000_500_000,
            "ActiveEnterTimestampMonotonic": 2_250_000,
            "InactiveExitTimestampMonotonic": 1_500_000,
            "InactiveEnterTimestampMonotonic": 2_500_000,
            "ActiveExitTimestampMonotonic": 3_500_000,
            "ConditionTimestampMonotonic": 4_500_000,
            "ExecMainStartTimestampMonotonic": 5_500_000,
            "Type": "notify",
            "SendSIGKILL": False,
            "After": ["basic.target", "nvidia-fabricmanager.service"],
            "Restart": "on-failure",
            "RestartMode": "direct",
            "KillMode": "mixed",
            "RestartUSec": 10_000_000,
            "TimeoutStartUSec": 90_000_000,
            "TimeoutStopUSec": 1_500_000,
            "StartLimitBurst": 5,
            "StartLimitIntervalUSec": 10_000_000,
            "ExecStart": [command("/usr/bin/vllm", "serve", "m")],
            "ExecStartPre": [command("/bin/true"), command("/usr/bin/llmhost", "guard")],
            "Environment": ["CUDA_VISIBLE_DEVICES=0,1", "OPTS=a=b", "EMPTY="],
            "EnvironmentFiles": [["/etc/default/vllm", True], ["/etc/vllm/*.env", False]],
            "PassEnvironment": ["LANG", "HF_TOKEN"],
        }
    )
    assert parsed.wrong == ()
    assert parsed.unit == Unit(
        id=UnitId("vllm@a.service", "system"),
        load_state="loaded",
        unit_file_state="enabled",
        active_state="activating",
        sub_state="auto-restart",
        result="exit-code",
        nrestarts=6,
        invocation_id="0123456789abcdef0123456789abcdef",
        main_pid=4711,
        control_pid=4712,
        exec_main_status=137,
        state_change_at=1_700_000_000.5,
        active_enter_monotonic=2.25,
        inactive_exit_monotonic=1.5,
        inactive_enter_monotonic=2.5,
        active_exit_monotonic=3.5,
        condition_monotonic=4.5,
        exec_main_start_monotonic=5.5,
        settings=UnitSettings(
            service_type="notify",
            restart="on-failure",
            restart_mode="direct",
            kill_mode="mixed",
            restart_delay_seconds=10.0,
            start_timeout_seconds=90.0,
            stop_timeout_seconds=1.5,
            start_limit_burst=5,
            start_limit_interval_seconds=10.0,
            send_sigkill=False,
            after=("basic.target", "nvidia-fabricmanager.service"),
            exec_start=(("/usr/bin/vllm", "serve", "m"),),
            exec_start_pre=(("/bin/true",), ("/usr/bin/llmhost", "guard")),
            environment=(("CUDA_VISIBLE_DEVICES", "0,1"), ("OPTS", "a=b"), ("EMPTY", "")),
            environment_files=("/etc/default/vllm", "/etc/vllm/*.env"),
            pass_environment=("LANG", "HF_TOKEN"),
        ),
    )


def test_the_sandbox_of_a_unit_finds_its_field() -> None:
    found = settings(
        User="llm",
        DynamicUser=True,
        PrivateDevices=True,
        DevicePolicy="closed",
        DeviceAllow=[["/dev/null", "rw"], ["char-nvidia", "rwm"]],
        ProtectProc="invisible",
        ProcSubset="pid",
        ProtectSystem="strict",
        ProtectControlGroupsEx="private",
        PrivatePIDs="yes",
        ReadWritePaths=["/srv"],
        RestrictAddressFamilies=[True, ["AF_INET", "AF_INET6"]],
        InaccessiblePaths=["/run/dbus"],
        TemporaryFileSystem=[["/dev/shm", "size=8G"]],
        RootDirectory="/srv/root",
        BindPaths=[["/dev/nvidia0", "/dev/gpu", False, 0]],
        BindReadOnlyPaths=[["/run/dbus", "/run/dbus", False, 0]],
        CapabilityBoundingSet=1 << 19,
        AmbientCapabilities=1 << 2,
        LimitNOFILE=4096,
        MemoryMax=64 << 30,
    )
    assert found.sandbox == Sandbox(
        user="llm",
        dynamic_user=True,
        private_devices=True,
        device_policy="closed",
        device_allow=("/dev/null", "char-nvidia"),
        protect_proc="invisible",
        proc_subset="pid",
        protect_system="strict",
        protect_control_groups="private",
        private_pids="yes",
        read_write_paths=("/srv",),
        address_families=("AF_INET", "AF_INET6"),
        families_are_allowed=True,
        hidden_paths=("/run/dbus", "/dev/shm"),
        root="/srv/root",
        bound_paths=("/dev/gpu", "/run/dbus"),
        capabilities=1 << 19,
        ambient_capabilities=1 << 2,
    )
    assert found.limits == Limits(open_files=4096, memory_bytes=64 << 30)


def test_limits_that_are_off_are_absent_and_what_is_not_restricted_says_nothing() -> None:
    names = ("LimitNOFILE", "MemoryMax")
    assert settings(**dict.fromkeys(names, INFINITY)).limits == Limits()
    assert settings(RestrictAddressFamilies=[False, []]).sandbox.address_families is None
    none_at_all = settings(RestrictAddressFamilies=[True, []]).sandbox
    assert (none_at_all.address_families, none_at_all.families_are_allowed) == ((), True)


def test_the_prefixes_of_commands_are_given_as_they_are_written() -> None:
    def full(*flags: str) -> list[Any]:
        return ["/bin/true", ["/bin/true"], list(flags), 0, 0, 0, 0, 0, 0, 0]

    commands = [full(), full("privileged"), full("ignore-failure", "privileged"), full("no-setuid"), full("unheard-of")]
    assert settings(ExecStartPreEx=commands).exec_start_pre_prefixes == ("", "+", "-+", "!", "")


def test_exit_statuses_and_signals_that_count_as_success_are_kept_apart() -> None:
    read = settings(SuccessExitStatus=[[1, 75], [9]])
    assert (read.success_exit_statuses, read.success_signals) == ((1, 75), (9,))


def test_what_an_old_systemd_does_not_have_is_absent() -> None:
    parsed = parse_unit(MINIMAL)
    assert parsed.wrong == ()
    assert parsed.unit == Unit(
        id=UnitId("vllm.service"),
        load_state="loaded",
        unit_file_state="",
        active_state="active",
        sub_state="running",
        settings=UnitSettings(),
    )
    assert parsed.unit.nrestarts is None


def test_infinite_times_are_absent_and_zero_is_zero() -> None:
    infinite = settings(TimeoutStartUSec=INFINITY, StartLimitIntervalUSec=INFINITY)
    assert infinite.start_timeout_seconds is None
    assert infinite.start_limit_interval_seconds is None
    zero = settings(RestartUSec=0, StartLimitIntervalUSec=0, StartLimitBurst=0)
    assert zero.restart_delay_seconds == 0.0
    assert zero.start_limit_interval_seconds == 0.0
    assert zero.start_limit_burst == 0


def test_a_moment_of_zero_has_not_come() -> None:
    unit = parse_unit({**MINIMAL, "StateChangeTimestamp": 0, "ExecMainStartTimestampMonotonic": 0}).unit
    assert unit.state_change_at is None
    assert unit.exec_main_start_monotonic is None


def test_the_exit_status_means_nothing_until_a_main_process_has_ended() -> None:
    assert parse_unit({**MINIMAL, "ExecMainCode": 0, "ExecMainStatus": 0}).unit.exec_main_status is None
    assert parse_unit({**MINIMAL, "ExecMainStatus": 3}).unit.exec_main_status is None
    assert parse_unit({**MINIMAL, "ExecMainCode": 1, "ExecMainStatus": 0}).unit.exec_main_status == 0


@pytest.mark.parametrize(
    ("name", "value", "complaint"),
    [
        ("NRestarts", "6", "NRestarts: str instead of int"),
        ("NRestarts", True, "NRestarts: bool instead of int"),
        ("Result", 0, "Result: int instead of str"),
        ("InvocationID", "0123", "InvocationID: str instead of bytes"),
        ("RestartUSec", "10s", "RestartUSec: str instead of int"),
        ("ExecStart", "/bin/true", "ExecStart: str instead of list"),
        ("ExecStart", ["/bin/true"], "ExecStart: not a list of structs with a list each"),
        ("ExecStartPre", [["/bin/true", [1]]], "ExecStartPre: not a list of commands"),
        ("Environment", [1], "Environment: not a list of str"),
        ("EnvironmentFiles", ["/etc/default/vllm"], "EnvironmentFiles: not a list of structs with a str each"),
        ("EnvironmentFiles", [[]], "EnvironmentFiles: not a list of structs with a str each"),
        ("PassEnvironment", "LANG", "PassEnvironment: str instead of list"),
        ("PassEnvironment", ["LANG", 1], "PassEnvironment: not a list of str"),
        ("ExecStartPreEx", [["/bin/true", ["/bin/true"]]], "ExecStartPreEx: not a list of structs with a list each"),
        ("DeviceAllow", [["/dev/null"], [1]], "DeviceAllow: not a list of structs with a str each"),
        ("BindPaths", [["/a"]], "BindPaths: not a list of structs with a str each"),
        ("RestrictAddressFamilies", [["AF_UNIX"]], "RestrictAddressFamilies: not a list of what is allowed"),
        ("LimitNOFILE", "infinity", "LimitNOFILE: str instead of int"),
        (
            "SuccessExitStatus",
            [[1, "TEMPFAIL"], []],
            "SuccessExitStatus: not a list of exit statuses and one of signals",
        ),
    ],
)
def test_a_value_of_a_wrong_type_is_absent_and_named(name: str, value: object, complaint: str) -> None:
    parsed = parse_unit({**MINIMAL, name: value})
    assert parsed.wrong == (complaint,)
    assert parsed.unit == parse_unit(MINIMAL).unit


@pytest.mark.parametrize("name", ["Id", "LoadState", "ActiveState", "SubState"])
def test_a_unit_without_a_state_is_no_unit(name: str) -> None:
    with pytest.raises(UnreadableUnitError, match=name):
        parse_unit({**MINIMAL, name: 7})


def test_a_unit_that_is_not_loaded_has_no_settings() -> None:
    assert parse_unit({**MINIMAL, "LoadState": "bad-setting", "Type": "simple"}).unit.settings is None


def test_a_units_file_says_what_an_unloaded_unit_is() -> None:
    assert (
        unloaded_unit("a.service", "enabled").load_state,
        unloaded_unit("a.service", "enabled").unit_file_state,
    ) == (
        "stub",
        "enabled",
    )
    assert unloaded_unit("a.service", "masked").load_state == "masked"
    assert unloaded_unit("a.service", "masked-runtime").load_state == "masked"
    missing = unloaded_unit("a.service", None)
    assert (missing.load_state, missing.unit_file_state) == ("not-found", "")
    assert (missing.active_state, missing.sub_state, missing.nrestarts) == ("inactive", "dead", None)


def test_commands_are_distinguished_from_other_values() -> None:
    assert exec_start([command("/bin/a", "b")]) == (("/bin/a", "b"),)
    assert exec_start("nonsense") == ()
