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


def doctor(host: Booted) -> tuple[int, list[dict[str, Any]]]:
    done = subprocess.run(
        [*LLMHOST, "doctor", "vllm-sick", "--json"],
        env=environment({"DBUS_SYSTEM_BUS_ADDRESS": host.bus_address}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
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
