"""Present activation and leftovers, by a real systemd's timestamps and real processes."""

import json
import sys
import time
from typing import Any

from tests.fakes.booted import Booted, booted_systemd

__all__ = ["booted_systemd"]

# Ignores SIGTERM, and leaves a child that outlives it.
STUBBORN = """
[Service]
ExecStart=/bin/bash -c 'trap "" TERM; sleep 1001 & sleep 1002 & wait; wait'
KillMode={kill_mode}
TimeoutStopSec={stop}
"""


# Looks at a unit and its processes from inside, where the cgroups are; prints the unit's state, whether its conditions
# were tested after it left inactive, and per process, by its argument, whether it is of the present activation.
PROGRAM = """
import json, sys, time
from pathlib import Path
from llmhost.derive.activation import is_of_present_activation, main_process
from llmhost.model.ids import UnitId
from llmhost.sources.host import HostSource
from llmhost.sources.procfs import ProcfsSource
from llmhost.sources.systemd.source import SystemdSource
name, deadline = sys.argv[1], time.monotonic() + 10
systemd = SystemdSource(patterns=(name,), discover=False, is_engine_command=lambda argv: False)
(unit,) = systemd.read(deadline).units
systemd.close()
table = ProcfsSource(procfs=Path("/proc"), trust_pid_namespace=True).read(deadline)
host, main = HostSource(procfs=Path("/proc")).read(deadline), main_process(unit, table)
mine = [one for one in table.by_pid.values() if one.placement.unit == UnitId(name) and one.argv[:1] == ("sleep",)]
print(json.dumps({
    "state": unit.active_state,
    "tested_anew": unit.condition_monotonic > (unit.inactive_exit_monotonic or 0),
    "present": {one.argv[1]: is_of_present_activation(one, unit, host, main) for one in mine},
    "present_without_main": {one.argv[1]: is_of_present_activation(one, unit, host, None) for one in mine},
}))
"""


def observe(booted: Booted, name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(booted.run([sys.executable, "-c", PROGRAM, name]).stdout)
    return found


def until(booted: Booted, name: str, state: str, sleepers: int) -> dict[str, Any]:
    deadline = time.monotonic() + 120
    while True:
        found = observe(booted, name)
        if found["state"] == state and len(found["present"]) == sleepers:
            return found
        assert time.monotonic() < deadline, found


def test_a_start_that_waits_for_a_slow_stop_makes_nothing_a_leftover(booted_systemd: Booted) -> None:
    name = "slow-stop.service"
    booted_systemd.write_unit(name, STUBBORN.format(kill_mode="control-group", stop="80"))
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", name)
    all_present = {"1001": True, "1002": True}
    try:
        found = until(booted_systemd, name, "active", 2)
        assert (found["present"], found["present_without_main"]) == (all_present, all_present)
        booted_systemd.systemctl("stop", "--no-block", name)
        found = until(booted_systemd, name, "deactivating", 2)
        assert (found["present"], found["present_without_main"]) == (all_present, all_present)
        booted_systemd.systemctl("start", "--no-block", name)
        found = observe(booted_systemd, name)
        version = int(booted_systemd.run(["systemctl", "--version"]).stdout.split()[1])
        assert found["tested_anew"] or version > 257, "a later systemd tests them when the stop is done"
        assert (found["present"], found["present_without_main"]) == (all_present, all_present)
    finally:
        end(booted_systemd, name)


def test_leftovers_are_distinguished_from_processes_of_the_present_run(booted_systemd: Booted) -> None:
    name = "leaves.service"
    text = STUBBORN.format(kill_mode="process", stop="1")
    booted_systemd.write_unit(name, text)
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", name)
    try:
        assert until(booted_systemd, name, "active", 2)["present"] == {"1001": True, "1002": True}
        booted_systemd.systemctl("kill", "--kill-who=main", "--signal=KILL", name)
        assert until(booted_systemd, name, "failed", 2)["present"] == {"1001": False, "1002": False}
        booted_systemd.write_unit(name, text.replace("1001", "2001").replace("1002", "2002"))
        booted_systemd.systemctl("daemon-reload")
        booted_systemd.systemctl("start", name)
        found = until(booted_systemd, name, "active", 4)
        for answer in (found["present"], found["present_without_main"]):
            assert answer == {"1001": False, "1002": False, "2001": True, "2002": True}
    finally:
        end(booted_systemd, name)


# Reads the host as `llmhost status` does, again and again; prints how many leftovers of the unit each time found, None
# where that is unknown.
STATUS = """
import json, sys, time
from pathlib import Path
from llmhost.assemble.host_reader import HostReader
from llmhost.config.paths import Paths
from llmhost.model.reading import Ok
name, found = sys.argv[1], []
with HostReader(Path("/etc/fast.yml"), None, Paths(), units=(name,)) as reader:
    while len(found) < 40:
        (unit,) = [facts for facts in reader.read().facts.units.value if facts.unit.id.name == name]
        found.append(len(unit.leftovers.value) if isinstance(unit.leftovers, Ok) else None)
print(json.dumps(found))
"""


def test_a_fast_loop_has_no_leftovers_where_it_leaves_nothing(booted_systemd: Booted) -> None:
    name = "fast.service"
    booted_systemd.write("/etc/fast.yml", "host: {pid_namespace: trust}\ncollectors: {nvml: false, shm: false}\n")
    text = "[Unit]\nStartLimitIntervalSec=0\n[Service]\nExecStart=/bin/sleep 0.05\nRestart=always\nRestartSec=0\n"
    booted_systemd.write_unit(name, text)
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.systemctl("start", name)
    try:
        found = json.loads(booted_systemd.run([sys.executable, "-c", STATUS, name]).stdout)
        assert set(found) <= {0, None}, found
    finally:
        end(booted_systemd, name)


def end(booted: Booted, name: str) -> None:
    booted.systemctl("stop", "--no-block", name, check=False)  # and start no more
    booted.systemctl("kill", "--signal=KILL", name, check=False)
    booted.systemctl("stop", name, check=False)
