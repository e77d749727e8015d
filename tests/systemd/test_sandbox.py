"""Sandbox and limits of a unit, read from a real systemd as they were written."""

from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.unit_source import read, source_at

from llmhost.model.sandbox import Limits, Sandbox

__all__ = ["booted_systemd"]

UNIT = """
[Service]
ExecStartPre=-+/bin/true
ExecStartPre=/bin/true
ExecStartPre=!/bin/true
ExecStart=/bin/sleep 1000
User=nobody
PrivateDevices=yes
DeviceAllow=char-nvidia* rw
BindPaths=/dev/null:/dev/zero
BindReadOnlyPaths=/etc/hosts
ProtectProc=invisible
ProcSubset=pid
ProtectSystem=strict
ReadWritePaths=/srv
RestrictAddressFamilies=AF_INET AF_INET6
InaccessiblePaths=/run/dbus
TemporaryFileSystem=/dev/shm:size=8G
CapabilityBoundingSet=CAP_SYS_PTRACE
AmbientCapabilities=CAP_DAC_READ_SEARCH
LimitNOFILE=4096
MemoryMax=64M
"""


def test_the_sandbox_of_a_unit_and_its_limits_are_read_as_they_were_written(booted_systemd: Booted) -> None:
    booted_systemd.write_unit("confined.service", UNIT)
    booted_systemd.systemctl("start", "confined.service", check=False)  # so that it is loaded, whatever becomes of it
    with source_at(booted_systemd.bus_address, "confined.service", root=booted_systemd.root) as source:
        (unit,) = read(source).units
    since_257 = booted_systemd.show("confined.service", "ProtectControlGroupsEx", "PrivatePIDs")
    booted_systemd.systemctl("stop", "confined.service")
    found = unit.settings
    assert found is not None
    assert found.exec_start_pre_prefixes == ("-+", "", "!")
    assert found.sandbox == Sandbox(
        user="nobody",
        private_devices=True,
        device_policy="closed",
        device_allow=found.sandbox.device_allow,  # with those that systemd adds by itself
        protect_proc="invisible",
        proc_subset="pid",
        protect_system="strict",
        protect_control_groups=since_257.get("ProtectControlGroupsEx", ""),
        private_pids=since_257.get("PrivatePIDs", ""),
        read_write_paths=("/srv",),
        address_families=("AF_INET", "AF_INET6"),
        families_are_allowed=True,
        hidden_paths=("/run/dbus", "/dev/shm"),
        bound_paths=("/dev/zero", "/etc/hosts"),
        capabilities=1 << 19,  # CAP_SYS_PTRACE, capability.h
        ambient_capabilities=1 << 2,  # CAP_DAC_READ_SEARCH
    )
    assert "char-nvidia*" in found.sandbox.device_allow
    assert found.limits == Limits(open_files=4096, memory_bytes=64 << 20)
