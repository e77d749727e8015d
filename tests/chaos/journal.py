"""The starts and ends of units in systemd's journal: the truth that counts are held against."""

import json
from collections import defaultdict
from dataclasses import dataclass, field

from tests.fakes.booted import Booted

# systemd's src/systemd/sd-messages.h
_RESTART_SCHEDULED = "5eb03494b6584870a536b337290809b3"
_PROCESS_EXIT = "98e322203f7a4ed290d09fe03c09fe15"
_REFUSED = "Start request repeated too quickly."
_CONFIG = "[Journal]\\nRateLimitIntervalSec=0\\nRateLimitBurst=0\\nStorage=volatile\\nRuntimeMaxUse=1G\\n"


@dataclass(slots=True)
class UnitLog:
    """The entries of one unit."""

    invocations: set[str] = field(default_factory=set)
    scheduled: int = 0  # restarts
    refused: int = 0  # of those, by the start limit
    doubled: int = 0  # of those, while one was scheduled already: systemd does so where it is reloaded just then
    automatic: set[str] = field(default_factory=set)  # invocations that came right after a restart was scheduled
    killed: set[str] = field(default_factory=set)  # invocations whose main process a signal ended, or that were stopped


def log_all(booted: Booted) -> None:
    """Have everything go to the journal, however much it is."""
    booted.run(["mkdir", "-p", "/etc/systemd/journald.conf.d"])
    booted.run(["/bin/sh", "-c", f"printf '{_CONFIG}' >/etc/systemd/journald.conf.d/all.conf"])
    booted.systemctl("restart", "systemd-journald.service")
    log_to_journal(booted)


def log_to_journal(booted: Booted) -> None:
    booted.systemctl("log-target", "journal")


def read_journal(booted: Booted, prefix: str) -> dict[str, UnitLog]:
    booted.run(["journalctl", "--sync"])
    fields = "UNIT,MESSAGE_ID,INVOCATION_ID,MESSAGE,N_RESTARTS"
    lines = booted.run(["journalctl", "-o", "json", "_PID=1", f"--output-fields={fields}"], timeout_seconds=120).stdout
    logs: dict[str, UnitLog] = defaultdict(UnitLog)
    due: dict[str, bool] = {}  # unit → whether a restart was scheduled and nothing has become of it
    for line in lines.splitlines():
        entry = json.loads(line)
        unit, message, invocation = (entry.get(key, "") for key in ("UNIT", "MESSAGE", "INVOCATION_ID"))
        if not unit.startswith(prefix):
            continue
        log = logs[unit]
        if entry.get("MESSAGE_ID") == _RESTART_SCHEDULED:
            log.scheduled += 1
            log.doubled += due.get(unit, False)
            due[unit] = True
        elif invocation and invocation not in log.invocations:
            log.invocations.add(invocation)
            if due.pop(unit, False):
                log.automatic.add(invocation)
        elif _REFUSED in message:
            log.refused += due.pop(unit, False)
        if (entry.get("MESSAGE_ID") == _PROCESS_EXIT and "code=killed" in message) or message.startswith("Stopp"):
            log.killed.add(invocation)
    return logs
