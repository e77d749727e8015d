"""Checks of a unit's start, restart and stop settings against its recorded runs. Pure."""

import math
import statistics
from collections.abc import Iterator

from llmhost.decide.doctor.finding import Case, Finding, Severity, guard_drop_in
from llmhost.derive.command import is_guard
from llmhost.derive.start_limit import delays_of_a_window_seconds, restart_delay_seconds
from llmhost.model.engine_options import given_options
from llmhost.model.history.unit_history import Trigger, Verdict
from llmhost.model.reading import Ok

_MARGIN = 1.2  # on what was measured
_ROOM = 1.5  # on intervals and time-outs: the next run may take longer
# What systemd/guard.conf sets and alerts/README.md advises: a service that fails so often in two hours is broken.
ADVISED_BURST = 5
ADVISED_INTERVAL_SECONDS = 7200
_ASSUMED_RUN_SECONDS = 300.0  # the length of a failing run, where none is recorded
_NOTIFYING_TYPES = frozenset(
    {"notify", "notify-reload", "dbus", "forking", "oneshot"}
)  # TimeoutStartSec= spans the load
_MAIN_ONLY = frozenset({"process", "none"})


def restart_delay(case: Case) -> Iterator[Finding]:
    """Find a RestartSec= shorter than the memory release, so that a restart finds memory in the way; a guard waits."""
    settings, record = case.settings, case.record
    if settings.restart in {"", "no"} or case.facts.guarded or record is None or record.last_release_seconds is None:
        return
    delay, release = settings.restart_delay_seconds, record.last_release_seconds
    if delay is None or delay >= release:
        return
    resident = record.starts_total.get((Trigger.AUTO, Verdict.RESIDENT), 0)
    hit = f"; {_times(resident)} a restart found memory in the way" if resident else ""
    yield case.finding(
        "restart-delay",
        Severity.ERROR if resident else Severity.WARNING,
        f"RestartSec={_seconds(delay)} is shorter than its memory takes to come back",
        f"after its last run that took {_seconds(release)}{hit}",
        "[Service]",
        f"RestartSec={_rounded_delay(case)}s",
        remedy=f"or let it wait for what it needs: {guard_drop_in(case.name)}",
    )


def start_limit(case: Case) -> Iterator[Finding]:
    """Find a start limit that is off, or that restarts are too slow to trip (derive/start_limit): it fails for ever."""
    settings = case.settings
    if case.facts.start_limit_can_trip != Ok(False):
        return
    burst, interval, delay = (
        settings.start_limit_burst,
        settings.start_limit_interval_seconds,
        settings.restart_delay_seconds,
    )
    longest = 0.0 if delay is None else restart_delay_seconds(settings, settings.restart_steps + 1)
    runs = _failed_runs(case)
    if not burst or not interval:
        what = "has no start limit: while it fails, systemd restarts it for ever"
        off = "StartLimitBurst=0" if burst == 0 else "StartLimitIntervalSec=0"
        why = f"{off} switches it off"
    else:
        what = "its start limit can never trip: while it fails, systemd restarts it for ever"
        if delay is None:
            why = "RestartSec=infinity"
        else:
            shortest = f" and its shortest failed run {_seconds(min(runs))}" if runs else ""
            delays = delays_of_a_window_seconds(settings, burst, case.facts.unit.nrestarts or 0)
            least = delays + burst * (min(runs) if runs else 0.0)
            grows = f" growing to {_seconds(longest)}" if longest > delay else ""
            why = (
                f"{burst} starts within {_seconds(interval)} trip it; with RestartSec={_seconds(delay)}{grows}"
                f"{shortest}, {burst} restarts take at least {_seconds(least)}"
            )
    run = (
        statistics.median(runs) if runs else _ASSUMED_RUN_SECONDS
    )  # not the mean: a run that served for days says nothing
    needed = ADVISED_BURST * (max(longest, _advised_delay(case)) + run) * _ROOM
    hours = _rounded(max(needed, ADVISED_INTERVAL_SECONDS), 3600) // 3600
    yield case.finding(
        "start-limit",
        Severity.ERROR if _is_looping(case) else Severity.WARNING,
        what,
        why,
        "[Unit]",
        f"StartLimitIntervalSec={hours}h",
        f"StartLimitBurst={ADVISED_BURST}",
        remedy="" if runs else f"this takes a failing run for no longer than {_seconds(_ASSUMED_RUN_SECONDS)}",
    )


def restart_on_failure(case: Case) -> Iterator[Finding]:
    """Find runs that ended with exit status 0, as a dead worker can end vLLM: Restart=on-failure does nothing then."""
    record = case.record
    if record is None or not record.unexpected_stops_total:
        return
    if not case.settings.restart.startswith("on-") or case.settings.restart == "on-success":
        return
    stops = record.unexpected_stops_total
    yield case.finding(
        "restart-on-failure",
        Severity.ERROR,
        f"Restart={case.settings.restart} does not bring it back when it ends with exit status 0",
        f"it did so {_times(stops)}, and nobody had asked it to end",
        "[Service]",
        "Restart=always",
    )


def start_timeout(case: Case) -> Iterator[Finding]:
    """Find a TimeoutStartSec= below the load time, for types with readiness notification, or the guard's wait."""
    settings, record = case.settings, case.record
    limit = settings.start_timeout_seconds
    if limit is None or limit == 0:
        return
    readiness = case.view.history.readiness.get(case.facts.unit.id)
    loads = readiness.past_seconds if readiness is not None else ()
    timeouts = record.failures_total.get("timeout", 0) if record is not None else 0
    if settings.service_type in _NOTIFYING_TYPES and loads and max(loads) * _MARGIN > limit:
        yield case.finding(
            "start-timeout",
            Severity.ERROR if max(loads) >= limit else Severity.WARNING,
            f"TimeoutStartSec={_seconds(limit)} is too short for its load",
            f"the longest of its last {len(loads)} loads took {_seconds(max(loads))}",
            "[Service]",
            f"TimeoutStartSec={_rounded(max(loads) * 2, 60)}s",
        )
    elif settings.service_type in _NOTIFYING_TYPES and not loads and timeouts:
        yield case.finding(
            "start-timeout",
            Severity.WARNING,
            f"TimeoutStartSec={_seconds(limit)} may be too short for its load",
            f"{_times(timeouts)} a time-out ended a run, perhaps as it was stopped, and no load was seen to finish",
            "[Service]",
            f"TimeoutStartSec={_rounded(max(limit * 3, 1800), 60)}s",
        )
    release = record.last_release_seconds if record is not None else None
    waits = any(map(is_guard, settings.exec_start_pre))
    if waits and release is not None and release * _MARGIN > limit:
        yield case.finding(
            "guard-timeout",
            Severity.ERROR if release >= limit else Severity.WARNING,
            f"TimeoutStartSec={_seconds(limit)} leaves its guard too little time to wait",
            f"after its last run memory took {_seconds(release)} to come back",
            "[Service]",
            f"TimeoutStartSec={_rounded(release * 2, 60)}s",
        )


def kill_mode(case: Case) -> Iterator[Finding]:
    """Find KillMode=process and none, which leave workers behind, with the weights."""
    mode = case.settings.kill_mode
    if mode not in _MAIN_ONLY:
        return
    count = len(case.facts.leftovers.value) if isinstance(case.facts.leftovers, Ok) else 0
    there = "1 is there now" if count == 1 else f"{count} are there now"
    yield case.finding(
        "kill-mode",
        Severity.ERROR if count else Severity.WARNING,
        f"KillMode={mode} leaves its other processes alive when its main process ends",
        f"processes of ended runs keep their GPU memory{f'; {there}' if count else ''}",
        "[Service]",
        "KillMode=mixed",
        remedy="mixed also sends SIGTERM to the main process alone, so it can still drain; the rest is killed after it",
    )


def no_sigkill(case: Case) -> Iterator[Finding]:
    if case.settings.send_sigkill is not False:
        return
    yield case.finding(
        "no-sigkill",
        Severity.WARNING,
        "SendSIGKILL=no leaves what ignores SIGTERM alive",
        "then it also stays down: systemd does not restart a unit whose processes it could not end",
        "[Service]",
        "SendSIGKILL=yes",
    )


def stop_timeout(case: Case) -> Iterator[Finding]:
    """Compare TimeoutStopSec= with --shutdown-timeout, for which vLLM drains; below that it is killed amidst."""
    engine, own = case.command
    limit = case.settings.stop_timeout_seconds
    if engine != "vllm" or limit is None:
        return
    given = given_options(engine, own[1:]).get("drain", "")
    try:
        drain = float(given or 0)
    except ValueError:
        return
    if not math.isfinite(drain) or drain <= 0 or limit > drain:
        return
    yield case.finding(
        "stop-timeout",
        Severity.WARNING,
        f"TimeoutStopSec={_seconds(limit)} kills it while it may still drain",
        f"its arguments give it --shutdown-timeout {given} (seconds)",
        "[Service]",
        f"TimeoutStopSec={_rounded(drain + 30, 10)}s",
    )


def _advised_delay(case: Case) -> float:
    """Compute the RestartSec= that is advised as well; 0 for none."""
    return float(_rounded_delay(case)) if any(restart_delay(case)) else 0.0


def _rounded_delay(case: Case) -> int:
    release = case.record.last_release_seconds if case.record is not None else None
    return _rounded((release or 0.0) * _MARGIN, 5)


def _failed_runs(case: Case) -> tuple[float, ...]:
    """Collect the lengths of runs that failed by themselves, in seconds."""
    starts = case.record.starts if case.record is not None else ()
    ends = [start.end for start in starts if start.end is not None]
    return tuple(end.seconds for end in ends if not end.asked and end.result not in {"", "success"})


def _is_looping(case: Case) -> bool:
    return "auto-restart" in case.facts.unit.sub_state or (case.facts.unit.nrestarts or 0) > ADVISED_BURST


def _times(number: int) -> str:
    return "once" if number == 1 else f"{number} times"


def _seconds(seconds: float) -> str:
    return f"{seconds:.0f}s" if seconds == round(seconds) else f"{seconds:.1f}s"


def _rounded(seconds: float, step: int) -> int:
    """Round up to a step."""
    return max(step, math.ceil(seconds / step) * step)
