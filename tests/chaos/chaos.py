"""A real systemd whose units fail and are started, stopped and killed at random, and the counts of that."""

import asyncio
import contextlib
import random
import time
from collections import Counter
from dataclasses import dataclass
from typing import Self

from tests.chaos import journal
from tests.chaos.units import DIRECT, DIRECTORY, UNITS, file_of, pattern_of, text
from tests.fakes.booted import Booted
from tests.fakes.watched_units import Watched

from llmhost.model.history.unit_history import Trigger, Verdict
from llmhost.sources.systemd.bus.connection import BusClosedError, CallTimeoutError
from llmhost.sources.systemd.calls import Systemd

_ACTIONS = {
    "start": 30,
    "stop": 20,
    "restart": 20,
    "reset-failed": 8,
    "kill": 10,
    "daemon-reload": 4,
    "daemon-reexec": 2,
    "bus": 1.5,
}
_MEAN_PAUSE_SECONDS = 0.25
_QUIET_SECONDS = 1.0
_POLL_SECONDS = 0.05
_LAG_SECONDS = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """Of one unit: what was counted, and what the journal and the units themselves have written down."""

    unit: str
    starts: int
    starts_true: int
    automatic: int
    automatic_true: int
    scheduled: int  # restarts, by the journal; those that came to nothing too
    refused: int  # of those, by the start limit
    doubled: int  # of those, for one start; where that is in a gap, NRestarts is all that tells, and it is too high
    not_started: int
    wrongly_not_started: int  # by invocation: ExecStart ran even so
    wrongly_started: int  # by invocation: neither ran ExecStart nor was it killed or stopped meanwhile
    unseen: int  # starts that were only counted, over a gap

    @property
    def is_right(self) -> bool:
        """Each start is counted once; only over a gap may NRestarts have counted a start too many."""
        too_many = self.starts - self.starts_true
        return (
            0 <= too_many <= (self.doubled if self.unseen else 0)
            and not self.wrongly_not_started
            and not self.wrongly_started
        )

    def __str__(self) -> str:
        return (
            f"{self.unit}: starts {self.starts} of {self.starts_true} ({self.starts - self.starts_true:+d}), "
            f"automatic {self.automatic} of {self.automatic_true} ({self.automatic - self.automatic_true:+d}; "
            f"{self.scheduled} scheduled, {self.refused} refused, {self.doubled} doubled), "
            f"not started {self.not_started} ({self.wrongly_not_started} wrongly, {self.wrongly_started} too few), "
            f"{self.unseen} unseen"
        )


class Chaos:
    """The same seed does the same in the same order; how far each unit has got by then is up to the machine."""

    def __init__(self, seed: int, actions: dict[str, float] | None = None) -> None:
        self._random = random.Random(seed)
        self._actions = _ACTIONS if actions is None else actions
        self._booted = Booted()
        self.done: Counter[str] = Counter()
        self.events = 0

    def __enter__(self) -> Self:
        self._booted.__enter__()
        journal.log_all(self._booted)
        self._booted.run(["mkdir", DIRECTORY, "/etc/systemd/system/dbus.service.d"])
        self._booted.write_unit("dbus.service.d/often.conf", "[Unit]\nStartLimitIntervalSec=0\n")
        for unit in UNITS:
            self._booted.write_unit(file_of(unit), text(unit))
            self._booted.write(f"{DIRECTORY}/{unit}", "")
        self._booted.systemctl("daemon-reload")
        self.watched = Watched(self._booted, *map(pattern_of, UNITS))
        self.watched.keep_events = False
        self.watched.__enter__()
        return self

    def __exit__(self, *exc: object) -> None:
        self.watched.source.close()
        self._booted.__exit__()

    def run(self, *, seconds: float = 0.0, actions: int = 0) -> None:
        """Make chaos for as long and as often, then have everything stop, and wait until all of it has been log."""
        self._booted.systemctl("--no-block", "start", DIRECT)
        end = time.monotonic() + seconds
        while time.monotonic() < end or self.done.total() < actions:
            (action,) = self._random.choices([*self._actions], [*self._actions.values()])
            self._do(action, self._random.choice([unit for unit in UNITS if unit != DIRECT]))
            self.done[action] += 1
            time.sleep(self._random.expovariate(1 / _MEAN_PAUSE_SECONDS))
        self._booted.systemctl("stop", *UNITS)
        self._settle()
        self._await_quiet()

    def _do(self, action: str, unit: str) -> None:
        match action:
            case "kill":
                self._booted.systemctl("kill", "--signal=KILL", unit, check=False)
            case "daemon-reload":
                self._booted.systemctl(action)
                journal.log_to_journal(self._booted)
            case "daemon-reexec" | "bus":
                self._settle()
                before = self._resyncs()
                self._booted.systemctl(*(("restart", "dbus.service") if action == "bus" else (action,)))
                journal.log_to_journal(self._booted)
                # Of what is done by hand while systemd is not on the bus, nobody can tell how often it was.
                while self._resyncs() == before:
                    time.sleep(0.01)
            case _:
                self._booted.systemctl("--no-block", action, unit, check=False)

    def _settle(self) -> None:
        """Wait until systemd has done its jobs and reported them: its answers come after its signals."""
        jobs, until = self._jobs(), time.monotonic() + _LAG_SECONDS
        while jobs & self._jobs():  # restarts without end are other jobs each time
            assert time.monotonic() < until, "systemd has jobs that do not end"
            time.sleep(_POLL_SECONDS)
        source = self.watched.source
        assert source._loop is not None
        while True:
            assert time.monotonic() < until, "systemd does not answer"
            session = source._session
            if session is None or session.bus is None or not session._owner:  # it connects anew, or systemd does
                time.sleep(_POLL_SECONDS)
                continue
            with contextlib.suppress(CallTimeoutError, BusClosedError):
                pinging = Systemd(session.bus, session._owner).ping()
                asyncio.run_coroutine_threadsafe(pinging, source._loop).result(_LAG_SECONDS)
                return

    def _jobs(self) -> set[str]:
        """Give the ids of systemd's jobs that end: with RestartMode=direct a start's job stays through all attempts."""
        lines = self._booted.systemctl("list-jobs", "--no-legend", "--plain").splitlines()
        jobs = (line.split() for line in lines)
        return {job for job, unit, *_ in jobs if job.isdecimal() and unit != DIRECT}

    def _resyncs(self) -> int:
        resyncs = self.watched.source._resyncs
        return resyncs["bus"] + resyncs["systemd"]

    def _await_quiet(self) -> None:
        session = self.watched.source._session
        assert session is not None
        assert session.bus is not None
        received = -1
        while session.bus.received != received:
            received = session.bus.received
            time.sleep(_QUIET_SECONDS)

    def outcomes(self) -> list[Outcome]:
        logs = journal.read_journal(self._booted, "c-")
        return [self._outcome(unit, logs[unit]) for unit in UNITS]

    def _outcome(self, unit: str, log: journal.UnitLog) -> Outcome:
        ran = set(self._booted.run(["cat", f"{DIRECTORY}/{unit}"]).stdout.split())
        starts = self.watched.verdicts(unit)
        triggers = self.watched.triggers(unit)
        none = {start for start, (_, verdict) in starts.items() if verdict is Verdict.NOT_STARTED}
        has_program = "ExecStart=/nonexistent" not in UNITS[unit]
        return Outcome(
            unit=unit,
            starts=triggers.total(),
            starts_true=len(log.invocations),
            automatic=triggers[Trigger.AUTO],
            automatic_true=len(log.automatic),
            scheduled=log.scheduled,
            refused=log.refused,
            doubled=log.doubled,
            not_started=len(none),
            wrongly_not_started=len(none & ran),
            wrongly_started=len(starts.keys() - none - ran - log.killed) if has_program else 0,
            unseen=triggers.total() - len(starts),
        )
