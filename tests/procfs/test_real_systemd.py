"""Units as a real systemd lays them out in the cgroup tree, against what it says of them itself."""

import json
import sys
from pathlib import Path

from tests.fakes.booted import Booted, booted_systemd  # noqa: F401  # a fixture

EXPORTER = Path(__file__).parents[2] / "exporter"

# name → how to start it
UNITS = {
    r"vllm@Qwen-Qwen3\x2d8B.service": "systemctl start 'vllm@Qwen-Qwen3\\x2d8B.service'",
    "cpu.service": "systemd-run --unit=cpu.service sleep 1000",  # escaped: the kernel has files cpu.*
    "_odd.service": "systemd-run --unit=_odd.service sleep 1000",
    "deep.service": "systemd-run --slice=llm-big.slice --unit=deep.service sleep 1000",
}

ASK = """
import json, sys, time
from pathlib import Path
from llmhost.sources.procfs import ProcfsSource
table = ProcfsSource(procfs=Path("/proc"), trust_pid_namespace=True).read(time.monotonic() + 10)
print(json.dumps({
    pid: [process.placement.home, *([unit.name, unit.manager] if (unit := process.placement.unit) else [])]
    for pid, process in table.by_pid.items()
}))
"""


def placements(booted: Booted) -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(
        booted.run(["env", "-C", "/", f"PYTHONPATH={EXPORTER}", sys.executable, "-c", ASK]).stdout
    )
    return found


def test_every_main_process_is_in_the_unit_that_systemd_says(booted_systemd: Booted) -> None:  # noqa: F811
    booted_systemd.write_unit("vllm@.service", "[Service]\nExecStart=/bin/sleep 1000\n")
    booted_systemd.systemctl("daemon-reload")
    for command in UNITS.values():
        booted_systemd.run(["sh", "-c", command])
    found = placements(booted_systemd)
    for unit in (*UNITS, "dbus.service", "systemd-journald.service"):
        main_pid = booted_systemd.show(unit, "MainPID")["MainPID"]
        assert found[main_pid] == ["service", unit, "system"]
    assert found["1"] == ["scope"]


def test_a_users_service_is_its_own_managers(booted_systemd: Booted) -> None:  # noqa: F811
    booted_systemd.systemctl("start", "user@0.service")
    reach = ["env", "XDG_RUNTIME_DIR=/run/user/0", "DBUS_SESSION_BUS_ADDRESS=unix:path=/run/user/0/bus"]
    booted_systemd.run([*reach, "systemd-run", "--user", "--unit=mine.service", "sleep", "1000"])
    shown = booted_systemd.run([*reach, "systemctl", "--user", "show", "--value", "--property=MainPID", "mine.service"])
    found = placements(booted_systemd)
    assert found[shown.stdout.strip()] == ["service", "mine.service", "user@0"]
    assert found[booted_systemd.show("user@0.service", "MainPID")["MainPID"]] == ["session"]
