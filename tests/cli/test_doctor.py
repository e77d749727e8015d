"""`llmhost doctor` against a real systemd: what it says to write mends what it found."""

import json
import subprocess
from typing import Any

from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.daemon import LLMHOST, environment

assert booted_systemd is not None  # a fixture

UNIT = "vllm-sick.service"
SICK = """\
[Unit]
StartLimitIntervalSec=0
[Service]
ExecStartPre=/bin/true
ExecStartPre=-/nonexistent/llmhost guard --timeout 2s
RestrictAddressFamilies=AF_INET
ExecStart=/bin/sh -c 'exec sleep 1000' vllm serve m
Restart=on-failure
RestartSec=1s
KillMode=process
SendSIGKILL=no
"""


def asked(host: Booted, *command: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [*LLMHOST, *command],
        env=environment({"DBUS_SYSTEM_BUS_ADDRESS": host.bus_address}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def doctor(host: Booted, name: str = "vllm-sick") -> tuple[int, list[dict[str, Any]]]:
    done = asked(host, "doctor", name, "--json")
    assert done.stderr == ""
    return done.returncode, json.loads(done.stdout)["findings"]


def test_the_lines_that_it_says_to_add_mend_what_it_found(booted_systemd: Booted) -> None:
    booted_systemd.write_unit(UNIT, SICK)
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", UNIT)
    code, found = doctor(booted_systemd)
    assert code == 1
    assert {finding["check"] for finding in found} == {"start-limit", "kill-mode", "no-sigkill", "guard-blinded"}
    lines = [line for finding in found for line in finding["drop_in"]]
    booted_systemd.run(["mkdir", f"/etc/systemd/system/{UNIT}.d"])
    booted_systemd.write_unit(f"{UNIT}.d/override.conf", "\n".join(lines) + "\n")
    booted_systemd.systemctl("daemon-reload")
    assert doctor(booted_systemd) == (0, [])
    shown = booted_systemd.show(UNIT, "StartLimitBurst", "KillMode", "SendSIGKILL", "ActiveState")
    assert shown == {"StartLimitBurst": "5", "KillMode": "mixed", "SendSIGKILL": "yes", "ActiveState": "active"}
    commands = booted_systemd.show(UNIT, "ExecStartPreEx")["ExecStartPreEx"]
    assert "flags=privileged ignore-failure" in commands or "flags=ignore-failure privileged" in commands


def test_another_name_of_a_unit_means_the_unit(booted_systemd: Booted) -> None:
    booted_systemd.write_unit(UNIT, SICK)
    booted_systemd.run(["ln", "-sf", UNIT, "/etc/systemd/system/qwen.service"])  # as Alias= does
    booted_systemd.systemctl("daemon-reload")
    for loaded in (False, True):
        if loaded:
            booted_systemd.systemctl("start", UNIT)
        assert doctor(booted_systemd, "qwen") == doctor(booted_systemd)
        by_unit, by_alias = (asked(booted_systemd, "clean", "--unit", name) for name in ("vllm-sick", "qwen"))
        assert by_alias.returncode == by_unit.returncode != 2
        assert by_alias.stderr == by_unit.stderr == ""
    assert asked(booted_systemd, "clean", "--unit", "nobodys").stderr == "llmhost: there is no unit nobodys.service\n"
    booted_systemd.systemctl("stop", UNIT)
    booted_systemd.run(["rm", "/etc/systemd/system/qwen.service"])
