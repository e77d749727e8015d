"""The source against a real systemd: it reports what `systemctl show` says."""

import contextlib
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from dbus_next.message import Message
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.bus_peer import Peer
from tests.fakes.unit_source import connection_of, eventually, read, source_at, units

from llmhost.model.unit import Unit, UnitSettings
from llmhost.sources.systemd.source import SystemdSource

assert booted_systemd is not None  # a fixture

MANAGER = "org.freedesktop.systemd1.Manager"
PEER = "org.freedesktop.DBus.Peer"
INSTANCE = "vllm@Qwen-Qwen3\\x2d8B.service"
SLEEPER = "[Service]\nExecStart=/bin/sleep 1000\n"
UNITS = {
    "vllm-crash.service": """
        [Unit]
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/sh -c 'test -e /tmp/crash-no-more && exec sleep 1000; exit 7'
        Restart=on-failure
        RestartSec=50ms
        """,
    "vllm-pre.service": """
        [Service]
        ExecStartPre=/bin/sleep 1000
        ExecStart=/bin/sleep 1000
        TimeoutStartSec=infinity
        """,
    "vllm-limit.service": """
        [Unit]
        StartLimitIntervalSec=60
        StartLimitBurst=3
        [Service]
        ExecStart=/bin/true
        Restart=always
        RestartSec=10ms
        """,
    "vllm@.service": """
        [Unit]
        After=nvidia-fabricmanager.service
        [Service]
        SendSIGKILL=no
        ExecStart=/bin/sh -c 'exec sleep 1000' %i %I
        Environment=CUDA_VISIBLE_DEVICES=0,1 HF_HOME=/models
        EnvironmentFile=-/etc/default/vllm
        EnvironmentFile=-/etc/vllm/%i*.env
        PassEnvironment=LANG HF_TOKEN
        KillMode=mixed
        TimeoutStartSec=5min
        TimeoutStopSec=2s
        Restart=on-failure
        RestartSec=10s
        """,
    "real.service": SLEEPER,
    "vllm-stub.service": f"{SLEEPER}\n[Install]\nWantedBy=multi-user.target\n",
    "vllm-reload.service": f"{SLEEPER}RestartSec=1s\n",
    "other.service": """
        [Unit]
        StartLimitIntervalSec=0
        [Service]
        ExecStart=/bin/false
        Restart=always
        RestartSec=20ms
        """,
    "engine-room.service": "[Service]\nExecStart=/bin/sleep 1001\n",
}
PATTERNS = ("vllm-*.service", "vllm@*.service", "alias.service", "gone.service", "vllm@none.service")
SHOWN = (
    *("Id", "LoadState", "UnitFileState", "ActiveState", "SubState", "Result", "NRestarts", "InvocationID", "MainPID"),
    *("ControlPID", "ExecMainCode", "ExecMainStatus", "StateChangeTimestamp", "ActiveEnterTimestampMonotonic"),
    *("InactiveExitTimestampMonotonic", "InactiveEnterTimestampMonotonic", "ActiveExitTimestampMonotonic"),
    *("ConditionTimestampMonotonic", "ExecMainStartTimestampMonotonic", "Type", "Restart", "RestartMode"),
    *("KillMode", "SendSIGKILL", "After"),
)


@pytest.fixture(name="host", scope="module")
def fixture_host(booted_systemd: Booted) -> Booted:
    for name, text in UNITS.items():
        booted_systemd.write_unit(name, "\n".join(line.strip() for line in text.splitlines()))
    booted_systemd.run(["ln", "-s", "real.service", "/etc/systemd/system/alias.service"])
    booted_systemd.run(["ln", "-s", "/dev/null", "/etc/systemd/system/vllm-masked.service"])
    booted_systemd.systemctl("daemon-reload")
    started = ["vllm-crash.service", "vllm-pre.service", "vllm-limit.service", "vllm-reload.service"]
    booted_systemd.systemctl("start", "--no-block", *started, INSTANCE, "real.service", "engine-room.service")
    booted_systemd.run(["systemd-run", "--unit=vllm-transient", "/bin/sleep", "1000"])
    return booted_systemd


def source_on(
    host: Booted,
    *patterns: str,
    **settings: Any,  # noqa: ANN401
) -> contextlib.AbstractContextManager[SystemdSource]:
    settings = {"is_engine_command": lambda argv: argv == ("/bin/sleep", "1001"), "root": host.root, **settings}
    return source_at(host.bus_address, *(patterns or PATTERNS), **settings)


@pytest.fixture(name="source")
def fixture_source(host: Booted) -> Iterator[SystemdSource]:
    with source_on(host) as source:
        yield source


def moment(text: str) -> float | None:
    if not text:
        return None
    return datetime.strptime(text, "%a %Y-%m-%d %H:%M:%S.%f UTC").replace(tzinfo=UTC).timestamp()


def monotonic(text: str) -> float | None:
    return int(text) / 1e6 if int(text) else None


def assert_as_shown(unit: Unit, shown: dict[str, str]) -> None:
    assert unit.id.name == shown["Id"]
    assert unit.load_state == shown["LoadState"]
    assert unit.unit_file_state == shown["UnitFileState"]
    assert unit.active_state == shown["ActiveState"]
    assert unit.sub_state == shown["SubState"]
    assert unit.result == shown["Result"]
    assert unit.nrestarts == int(shown["NRestarts"])
    assert unit.invocation_id == shown["InvocationID"]
    assert unit.main_pid == int(shown["MainPID"])
    assert unit.control_pid == int(shown.get("ControlPID", "0"))
    assert unit.exec_main_status == (int(shown["ExecMainStatus"]) if shown["ExecMainCode"] != "0" else None)
    assert unit.state_change_at == pytest.approx(moment(shown["StateChangeTimestamp"]), abs=1e-6)
    assert unit.active_enter_monotonic == monotonic(shown["ActiveEnterTimestampMonotonic"])
    assert unit.inactive_exit_monotonic == monotonic(shown["InactiveExitTimestampMonotonic"])
    assert unit.inactive_enter_monotonic == monotonic(shown["InactiveEnterTimestampMonotonic"])
    assert unit.active_exit_monotonic == monotonic(shown["ActiveExitTimestampMonotonic"])
    assert unit.condition_monotonic == monotonic(shown["ConditionTimestampMonotonic"])
    assert unit.exec_main_start_monotonic == monotonic(shown["ExecMainStartTimestampMonotonic"])
    assert unit.settings is not None
    assert unit.settings.service_type == shown["Type"]
    assert unit.settings.restart == shown["Restart"]
    assert unit.settings.restart_mode == shown.get("RestartMode", "")  # since 254
    assert unit.settings.kill_mode == shown["KillMode"]
    assert unit.settings.send_sigkill is (shown["SendSIGKILL"] == "yes")
    assert list(unit.settings.after) == sorted(shown["After"].split())


def test_all_that_is_watched_is_reported_and_nothing_else(host: Booted, source: SystemdSource) -> None:
    found = units(source)
    assert list(found) == [
        "gone.service",
        "real.service",
        "vllm-crash.service",
        "vllm-limit.service",
        "vllm-masked.service",
        "vllm-pre.service",
        "vllm-reload.service",
        "vllm-stub.service",
        "vllm-transient.service",
        INSTANCE,
        "vllm@none.service",
    ]
    unloaded = {name: (unit.load_state, unit.unit_file_state) for name, unit in found.items() if not unit.settings}
    assert unloaded == {
        "gone.service": ("not-found", ""),
        "vllm-masked.service": ("masked", "masked"),
        "vllm-stub.service": ("stub", "disabled"),
        "vllm@none.service": ("stub", "static"),
    }
    assert read(source).systemd_version == host.systemctl("show", "--property=Version", "--value").strip()


def test_a_unit_that_hangs_before_its_start(host: Booted, source: SystemdSource) -> None:
    found = eventually(source, lambda found: found["vllm-pre.service"].sub_state == "start-pre")
    unit = found["vllm-pre.service"]
    assert_as_shown(unit, host.show("vllm-pre.service", *SHOWN))
    assert (unit.active_state, unit.main_pid, unit.exec_main_status) == ("activating", 0, None)
    assert unit.control_pid > 0
    assert unit.exec_main_start_monotonic is None
    assert unit.settings is not None
    assert unit.settings == UnitSettings(
        notify_access="none",
        service_type="simple",
        restart="no",
        kill_mode="control-group",
        send_sigkill=True,
        after=unit.settings.after,  # as shown
        restart_mode=unit.settings.restart_mode,
        restart_delay_seconds=0.1,
        start_timeout_seconds=None,
        stop_timeout_seconds=90.0,
        start_limit_burst=5,
        start_limit_interval_seconds=10.0,
        exec_start=(("/bin/sleep", "1000"),),
        exec_start_pre=(("/bin/sleep", "1000"),),
        exec_start_pre_prefixes=("",),
        sandbox=unit.settings.sandbox,  # test_sandbox.py
        limits=unit.settings.limits,
    )


def test_a_unit_that_reached_its_start_limit(host: Booted, source: SystemdSource) -> None:
    found = eventually(source, lambda found: found["vllm-limit.service"].active_state == "failed")
    time.sleep(0.05)  # systemd 252 passes `failed` for a moment in each cycle
    unit = units(source)["vllm-limit.service"]
    assert found["vllm-limit.service"].id == unit.id
    assert_as_shown(unit, host.show("vllm-limit.service", *SHOWN))
    assert (unit.result, unit.exec_main_status) == ("start-limit-hit", 0)
    assert unit.settings is not None
    assert (unit.settings.start_limit_burst, unit.settings.start_limit_interval_seconds) == (3, 60.0)


def test_an_instance_of_a_template_with_an_escaped_name(host: Booted, source: SystemdSource) -> None:
    unit = eventually(source, lambda found: found[INSTANCE].sub_state == "running")[INSTANCE]
    assert_as_shown(unit, host.show(INSTANCE, *SHOWN))
    assert unit.settings is not None
    assert "nvidia-fabricmanager.service" in unit.settings.after
    assert unit.settings == UnitSettings(
        notify_access="none",
        service_type="simple",
        restart="on-failure",
        kill_mode="mixed",
        send_sigkill=False,
        after=unit.settings.after,  # as shown
        restart_mode=unit.settings.restart_mode,
        restart_delay_seconds=10.0,
        start_timeout_seconds=300.0,
        stop_timeout_seconds=2.0,
        start_limit_burst=5,
        start_limit_interval_seconds=10.0,
        exec_start=(("/bin/sh", "-c", "exec sleep 1000", "Qwen-Qwen3\\x2d8B", "Qwen/Qwen3-8B"),),
        environment=(("CUDA_VISIBLE_DEVICES", "0,1"), ("HF_HOME", "/models")),
        environment_files=("/etc/default/vllm", "/etc/vllm/Qwen-Qwen3\\x2d8B*.env"),
        pass_environment=("LANG", "HF_TOKEN"),
        sandbox=unit.settings.sandbox,  # test_sandbox.py
        limits=unit.settings.limits,
    )


def test_variables_of_systemd_itself_come_with_each_unit(host: Booted, source: SystemdSource) -> None:
    def systemds_own(found: Mapping[str, Unit]) -> Mapping[str, str]:
        settings = found[INSTANCE].settings
        assert settings is not None
        return dict(settings.manager_environment or ())

    assert "PATH" in systemds_own(eventually(source, lambda found: INSTANCE in found))
    host.systemctl("set-environment", "CUDA_VISIBLE_DEVICES=3")  # no signal tells of it; the next start does
    host.systemctl("restart", INSTANCE)
    eventually(source, lambda found: systemds_own(found).get("CUDA_VISIBLE_DEVICES") == "3")
    host.systemctl("unset-environment", "CUDA_VISIBLE_DEVICES")


def test_an_alias_is_its_unit_also_when_that_is_not_loaded(host: Booted, source: SystemdSource) -> None:
    unit = units(source)["real.service"]
    assert_as_shown(unit, host.show("alias.service", *SHOWN))
    host.systemctl("stop", "real.service")
    stopped = eventually(source, lambda found: found["real.service"].active_state == "inactive")
    assert "alias.service" not in stopped
    with source_on(host) as fresh:
        assert units(fresh)["real.service"].load_state == "stub"
        host.systemctl("start", "alias.service")
        eventually(fresh, lambda found: found["real.service"].active_state == "active")


def test_a_crash_loop_is_followed_by_signals_alone(host: Booted, source: SystemdSource) -> None:
    before = units(source)["vllm-crash.service"]
    assert before.nrestarts is not None
    later = eventually(
        source, lambda found: (found["vllm-crash.service"].nrestarts or 0) >= (before.nrestarts or 0) + 3
    )
    assert later["vllm-crash.service"].invocation_id != before.invocation_id
    host.write("/tmp/crash-no-more", "")
    eventually(source, lambda found: found["vllm-crash.service"].sub_state == "running")
    time.sleep(0.3)  # it now stays up: nothing may move between the two looks
    unit = units(source)["vllm-crash.service"]
    assert_as_shown(unit, host.show("vllm-crash.service", *SHOWN))
    assert (unit.sub_state, unit.exec_main_status) == ("running", None)


def test_a_transient_unit_is_reported_until_and_after_it_goes(host: Booted, source: SystemdSource) -> None:
    unit = units(source)["vllm-transient.service"]
    assert_as_shown(unit, host.show("vllm-transient.service", *SHOWN))
    assert unit.unit_file_state == "transient"
    host.systemctl("stop", "vllm-transient.service")
    unloaded = eventually(source, lambda found: found["vllm-transient.service"].load_state == "not-found")
    assert unloaded["vllm-transient.service"].active_state == "inactive"
    host.run(["systemd-run", "--unit=vllm-transient", "/bin/sleep", "1000"])
    eventually(source, lambda found: found["vllm-transient.service"].sub_state == "running")


def test_discovery_and_units_that_hold_gpu_memory(host: Booted) -> None:
    with source_on(host, discover=True) as source:
        assert units(source)["engine-room.service"].sub_state == "running"
    with source_on(host, discover=True, is_engine_command=lambda _: False) as source:
        assert "engine-room.service" not in units(source)
        source.watch(["engine-room.service"])
        assert units(source)["engine-room.service"].sub_state == "running"


def test_looking_makes_systemd_load_nothing(host: Booted) -> None:
    listener = Peer(host.bus_address)
    for member in ("UnitNew", "UnitRemoved"):
        listener.call("AddMatch", "s", f"type='signal',interface='{MANAGER}',member='{member}'")
    listener.send(Message("org.freedesktop.systemd1", "/org/freedesktop/systemd1", MANAGER, "Subscribe"))
    with source_on(host, discover=True) as source:
        source.watch(["vllm@other.service", "not-there.service"])
        for _ in range(10):
            read(source)
        source.configure(patterns=(*PATTERNS, "no-such.service"), discover=True)
        read(source)
    # systemd answers after all that it has sent before
    end = listener.send(Message("org.freedesktop.systemd1", "/org/freedesktop/systemd1", PEER, "Ping"))
    loaded = []
    while (message := listener.receive()) is not None and message.reply_serial != end:
        loaded.append(message)
    assert [message.body for message in loaded if message.member in ("UnitNew", "UnitRemoved")] == []
    listener.close()


def test_an_unwatched_crash_loop_costs_nothing(host: Booted) -> None:
    """Once what the source asks for first, also some time after its connection, has been answered."""
    with source_on(host, "real.service") as source:
        read(source)
        host.systemctl("start", "other.service")
        bus, until = connection_of(source), time.monotonic() + 60
        before = None
        while before != (before := (bus.sent, bus.received)):
            assert time.monotonic() < until, "it goes on"
            loops = int(host.show("other.service", "NRestarts")["NRestarts"])
            while int(host.show("other.service", "NRestarts")["NRestarts"]) < loops + 5:
                read(source)
        host.systemctl("stop", "other.service")


def test_a_reload_changes_settings_and_loses_no_state(host: Booted, source: SystemdSource) -> None:
    before = units(source)["vllm-reload.service"]
    host.write_unit("vllm-reload.service", f"{SLEEPER}RestartSec=33s\nTimeoutStopSec=infinity\n")
    host.systemctl("daemon-reload")
    found = eventually(source, lambda found: restart_delay(found["vllm-reload.service"]) == 33.0)
    after = found["vllm-reload.service"]
    assert after.settings is not None
    assert after.settings.stop_timeout_seconds is None
    assert (after.invocation_id, after.main_pid, after.nrestarts) == (before.invocation_id, before.main_pid, 0)
    assert after.inactive_exit_monotonic == before.inactive_exit_monotonic
    assert dict(read(source).resyncs)["reload"] == 1


def restart_delay(unit: Unit) -> float | None:
    return unit.settings.restart_delay_seconds if unit.settings is not None else None


def test_a_unit_that_is_enabled_is_seen_to_be(host: Booted, source: SystemdSource) -> None:
    assert units(source)["vllm-stub.service"].unit_file_state == "disabled"
    host.systemctl("enable", "--no-reload", "vllm-stub.service")
    eventually(source, lambda found: found["vllm-stub.service"].unit_file_state == "enabled")
    host.systemctl("disable", "--no-reload", "vllm-stub.service")
    eventually(source, lambda found: found["vllm-stub.service"].unit_file_state == "disabled")


def test_a_reexecuted_systemd_is_followed_on(host: Booted, source: SystemdSource) -> None:
    before = units(source)
    host.systemctl("daemon-reexec")
    found = eventually(source, lambda _: dict(read(source).resyncs)["systemd"] == 1)
    assert found[INSTANCE] == before[INSTANCE]
    host.systemctl("restart", INSTANCE)
    after = eventually(source, lambda found: found[INSTANCE].invocation_id != before[INSTANCE].invocation_id)
    assert_as_shown(after[INSTANCE], host.show(INSTANCE, *SHOWN))


def test_a_restarted_bus_is_followed_on(host: Booted, source: SystemdSource) -> None:
    before = units(source)
    host.systemctl("restart", "dbus.service")
    found = eventually(source, lambda _: dict(read(source).resyncs)["bus"] == 1)
    assert found[INSTANCE] == before[INSTANCE]
    host.systemctl("restart", INSTANCE)
    after = eventually(source, lambda found: found[INSTANCE].invocation_id != before[INSTANCE].invocation_id)
    assert after[INSTANCE].nrestarts == 0


def test_the_boots_times_are_systemds_by_both_clocks(booted_systemd: Booted) -> None:
    booted_systemd.systemctl("is-system-running", "--wait", check=False)
    with source_at(booted_systemd.bus_address, *PATTERNS) as source:
        times = read(source).boot_times
    for name, (at, monotonic) in zip(("UserspaceTimestamp", "FinishTimestamp"), times, strict=True):
        shown = booted_systemd.run(["systemctl", "show", "-P", f"{name}Monotonic"]).stdout
        assert round(monotonic * 1e6) == int(shown)
        assert abs(at - monotonic - (time.time() - time.monotonic())) < 1
