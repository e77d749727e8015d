"""Checks of a unit's guard: that there is one, that its sandbox lets it work, and that it is root's alone. Pure."""

import re
import shlex
from collections.abc import Iterator

from llmhost.decide.doctor.finding import Case, Finding, Severity, guard_drop_in
from llmhost.decide.guard.refusal import DOCUMENTED, refusal_code
from llmhost.derive.command import is_guard
from llmhost.model.history.unit_history import Verdict
from llmhost.model.sandbox import Sandbox

_GUARDED_ENGINES = frozenset({"vllm", "sglang"})  # whose start fails for want of memory that comes back later
_BUS = "/run/dbus/system_bus_socket"
_RECORDS = "/run/llmhost"
_SYS_PTRACE = 1 << 19  # linux/capability.h: with it ProtectProc= hides nothing
_HIDES_PROCESSES = frozenset({"noaccess", "invisible", "ptraceable"})
_SIGKILL = 9
_RESTARTS_OF_OTHER_ENDS = frozenset({"on-success", "on-abnormal", "on-abort", "on-watchdog"})
_HIDES_CGROUPS = frozenset({"private", "strict"})
_PLAIN_WORD = re.compile(r"[A-Za-z0-9_./:=,@+-]+")


def guard(case: Case) -> Iterator[Finding]:
    """Find a unit that starts without waiting for its memory."""
    if case.facts.guarded or case.facts.engine not in _GUARDED_ENGINES:
        return
    record = case.record
    starts = record.starts_total if record is not None else {}
    resident = sum(number for (_, verdict), number in starts.items() if verdict is Verdict.RESIDENT)
    total = sum(starts.values())
    if resident:
        why = f"{resident} of its {total} starts found memory in the way"
    else:
        why = "a restart right after a run may find its memory still in the way"
    yield case.finding(
        "guard",
        Severity.WARNING if resident else Severity.NOTE,
        "starts without waiting for the memory that it needs",
        why,
        remedy=guard_drop_in(case.name),
    )


def guard_blinded(case: Case) -> Iterator[Finding]:
    """Find a guard without the prefix "+", so that the unit's sandbox restricts it (systemd.service(5)).

    systemd reports the prefix since 243. Devices are the check hidden-devices: the engine needs them too.
    """
    settings, sandbox = case.settings, case.settings.sandbox
    within = [
        (command, prefix)
        for command, prefix in zip(settings.exec_start_pre, settings.exec_start_pre_prefixes, strict=False)
        if is_guard(command) and "+" not in prefix
    ]
    if not within:
        return
    command, prefix = within[0]
    by_bus = "" if any(word.startswith("--need-free") for word in command) else _without_bus(sandbox)
    sandboxed = [*_without_processes(sandbox), *_without_records(sandbox, elevated="!" in prefix)]
    if not by_bus and not sandboxed:
        return
    without_bus = (
        [f"{by_bus} keeps it from asking systemd what the unit needs, so it lets every start go on"] if by_bus else []
    )
    yield case.finding(
        "guard-blinded",
        Severity.WARNING if by_bus else Severity.NOTE,
        "its guard runs within the service's own sandbox, which keeps things from it",
        "; ".join([*without_bus, *sandboxed]),
        *_with_plus(case),
        remedy="" if _with_plus(case) else 'write "+" before the guard: ExecStartPre=+…',
    )


def guard_refusals(case: Case) -> Iterator[Finding]:
    """Find a SuccessExitStatus= by which a start that the guard refused goes on (systemd.service(5)).

    The guard leaves by another code then, for which it must reach systemd. Nothing helps it if it is killed.
    RestartPreventExitStatus= and RestartForceExitStatus= look at the main process alone.
    """
    settings = case.settings
    if not any(map(is_guard, settings.exec_start_pre)):
        return
    listed = [str(status) for status in DOCUMENTED if status in settings.success_exit_statuses]
    killed = _SIGKILL in settings.success_signals
    why = []
    if listed:
        codes = ", ".join(str(refusal_code(int(status), settings.success_exit_statuses)) for status in listed)
        why.append(f"it leaves with {codes} in place of {', '.join(listed)}, but only if it can ask systemd")
    if killed:
        why.append("if it is killed, for want of memory for one, the start goes on")
    if not why:
        return
    kept = [str(status) for status in settings.success_exit_statuses if status not in DOCUMENTED]
    named = set(settings.success_signals) <= {_SIGKILL}  # signals are written by name, and we have numbers
    lines = ("[Service]", "SuccessExitStatus=", *([f"SuccessExitStatus={' '.join(kept)}"] if kept else []))
    what = " ".join([*listed, *(["SIGKILL"] if killed else [])])
    yield case.finding(
        "guard-refusals",
        Severity.WARNING,
        f"SuccessExitStatus={what} counts for its guard too",
        "; ".join(why),
        *(lines if named else ()),
        remedy="" if named else f"take {what} out of SuccessExitStatus=",
    )


def guard_restart(case: Case) -> Iterator[Finding]:
    """Find a Restart= that does not start the unit again after its guard gave up: that ends with an exit code."""
    if not case.facts.guarded or case.settings.restart not in _RESTARTS_OF_OTHER_ENDS:
        return
    yield case.finding(
        "guard-restart",
        Severity.WARNING,
        f"Restart={case.settings.restart} does not start it again once its guard has refused a start",
        "a refusal is an exit code, which it leaves alone",
        "[Service]",
        "Restart=on-failure",
    )


def guard_exposed(case: Case) -> Iterator[Finding]:
    """Find a guard that root runs, and of which others may change what is run, or its environment."""
    if not case.exposed:
        return
    name = shlex.quote(case.name)
    yield case.finding(
        "guard-exposed",
        Severity.ERROR,
        "others than root can become root at its next start: its guard runs as root",
        "; ".join(case.exposed),
        remedy=f"make that root's alone, or take the + away: llmhost guard --uninstall {name}, then llmhost guard "
        f"--install {name} --as-user",
    )


def _is_root(sandbox: Sandbox) -> bool:
    return sandbox.user in {"", "root", "0"} and not sandbox.dynamic_user


def _without_bus(sandbox: Sandbox) -> str:
    """Name the setting that keeps it from D-Bus; "" where none does."""
    families = sandbox.address_families
    if families is not None and ("AF_UNIX" in families) is not sandbox.families_are_allowed:
        return "RestrictAddressFamilies= without AF_UNIX"
    if any(_covers(path, _BUS) for path in sandbox.bound_paths):
        return ""
    hiding = next((path for path in sandbox.hidden_paths if _covers(path, _BUS)), "")
    if hiding:
        return f"InaccessiblePaths= or TemporaryFileSystem={hiding.lstrip('-+')}"
    return "RootDirectory= or RootImage=" if sandbox.root not in {"", "/"} else ""


def _without_processes(sandbox: Sandbox) -> Iterator[str]:
    if sandbox.proc_subset == "pid":
        yield "ProcSubset=pid hides from it what /proc tells of the host, so it does not tell who holds the memory"
    if sandbox.private_pids == "yes":
        yield "PrivatePIDs=yes hides others' processes, so it does not tell whose the memory is, and ends no leftover"
    if sandbox.protect_control_groups in _HIDES_CGROUPS:
        groups = f"ProtectControlGroups={sandbox.protect_control_groups}"
        yield f"{groups} hides whose a process is, so it does not tell whose the memory is, and ends no leftover"
    powers = sandbox.capabilities if _is_root(sandbox) else sandbox.ambient_capabilities
    if sandbox.protect_proc in _HIDES_PROCESSES and powers is not None and not powers & _SYS_PTRACE:
        yield f"ProtectProc={sandbox.protect_proc} hides others' processes, so it does not tell whose the memory is"


def _without_records(sandbox: Sandbox, *, elevated: bool) -> Iterator[str]:
    if not _is_root(sandbox) and not elevated:
        user = f"User={sandbox.user}" if sandbox.user else "DynamicUser=yes"
        yield f"{user} may not write to {_RECORDS}, so its runs leave no record for metrics"
    elif sandbox.protect_system == "strict" and not any(_covers(path, _RECORDS) for path in sandbox.read_write_paths):
        yield f"ProtectSystem=strict makes {_RECORDS} read-only, so its runs leave no record for metrics"


def _covers(path: str, what: str) -> bool:
    """Tell if `what` is at or below a path of a setting: "-" and "+" may stand before it (systemd.exec(5))."""
    top = path.lstrip("-+").rstrip("/")
    top = "/run" + top.removeprefix("/var/run") if top == "/var/run" or top.startswith("/var/run/") else top
    return what == top or what.startswith(f"{top}/")


def _with_plus(case: Case) -> tuple[str, ...]:
    """Write all ExecStartPre= lines, as a drop-in cannot change one of several; () where quoting would be needed."""
    settings = case.settings
    lines = []
    for command, prefix in zip(settings.exec_start_pre, settings.exec_start_pre_prefixes, strict=True):
        if not all(_PLAIN_WORD.fullmatch(word) for word in command):
            return ()
        raised = prefix if not is_guard(command) or "+" in prefix else prefix.replace("!", "") + "+"
        lines.append(f"ExecStartPre={raised}{' '.join(command)}")
    return ("[Service]", "ExecStartPre=", *lines)
