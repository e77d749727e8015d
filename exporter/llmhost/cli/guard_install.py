"""`llmhost guard --install UNIT` and `--uninstall UNIT`: the drop-in that puts the guard before a service."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import llmhost
from llmhost.act.drop_ins import SYSTEM, drop_in_of, is_as_written, signed
from llmhost.cli.exits import Exit
from llmhost.cli.output import complain, write_out
from llmhost.decide.guard.drop_in import UnfitError, guard_drop_in_text
from llmhost.decide.guard.refusal import success_note
from llmhost.derive.command import is_guard

_SYSTEMCTL_SECONDS = 30.0  # a daemon-reload of a busy machine takes seconds
_PROPERTIES = (
    "Id,LoadState,LoadError,NotifyAccess,TimeoutStartUSec,RestartUSec,ExecStartPre,DefaultDependencies,After,"
    "SuccessExitStatus"
)
_ARGV = re.compile(r"argv\[\]=(.*?) ;")  # as `systemctl show` writes a command
_AFTER_BUS = frozenset({"basic.target", "sockets.target", "dbus.socket", "dbus.service"})


class _CannotError(Exception):
    """str() is one line."""


def install(given: str, *, system: Path = SYSTEM) -> Exit:
    """Show the drop-in, write it, and reload systemd."""
    return _reported(lambda: _install(given, system))


def uninstall(given: str, *, system: Path = SYSTEM) -> Exit:
    """Remove the drop-in, unless it has been edited, and reload systemd."""
    return _reported(lambda: _uninstall(given, system))


def _reported(doing: Callable[[], Exit]) -> Exit:
    try:
        return doing()
    except (_CannotError, UnfitError) as error:
        complain(str(error))
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}")
    return Exit.WRONG_USE


def _install(given: str, system: Path) -> Exit:
    unit, settings = _unit(given)
    body = guard_drop_in_text(
        _shipped(),
        sys.executable,
        settings.get("NotifyAccess", ""),
        timeout_start=settings.get("TimeoutStartUSec", ""),
        restart=settings.get("RestartUSec", ""),
    )
    drop_in = drop_in_of(unit, system)
    present = drop_in.text()
    if present is not None and not is_as_written(present):
        complain(f"{drop_in.path} is somebody's own, or has been edited: left alone. Move it away first")
        return Exit.FINDINGS
    if present is None and _has_guard(settings):
        complain(f"{unit} has a guard already (systemctl cat {unit}): nothing is written")
        return Exit.FINDINGS
    write_out(f"{drop_in.path}:\n\n{body}\n")
    _check_root(system)
    if present == signed(body):
        write_out("It is there already.\n")
        return Exit.GOOD
    _check_it_runs()
    for note in _notes(settings):
        write_out(f"Note: {note}\n")
    drop_in.write(body)
    write_out("Written.\n")
    if _reload(unit, "The guard runs at the next start", is_so=_has_guard):
        return Exit.GOOD
    complain(f"the guard will not run: ExecStartPre= of another drop-in takes it away (systemctl cat {unit})")
    return Exit.FINDINGS


def _uninstall(given: str, system: Path) -> Exit:
    _check_root(system)
    unit = _named(given)
    drop_in = drop_in_of(unit, system)
    if drop_in.text() is None:
        unit, _ = _unit(given)  # its real name, if that was an alias
        drop_in = drop_in_of(unit, system)
    text = drop_in.text()
    if text is None:
        raise _CannotError(f"there is no {drop_in.path}: nothing to remove")
    if not is_as_written(text):
        complain(f"{drop_in.path} is somebody's own, or has been edited: left alone. To remove it: rm {drop_in.path}")
        return Exit.FINDINGS
    drop_in.remove()
    write_out(f"Removed {drop_in.path}\n")
    if not _reload(unit, "No guard runs at the next start", is_so=lambda now: not _has_guard(now)):
        complain(f"{unit} still has a guard (systemctl cat {unit})")
        return Exit.FINDINGS
    return Exit.GOOD


def _check_root(system: Path) -> None:
    if os.geteuid() != 0:
        raise _CannotError(f"it takes root to write to {system}")


def _check_it_runs() -> None:
    """Check that the drop-in's command runs: with -I neither PYTHONPATH= nor a user's own packages count."""
    command = [sys.executable, "-I", "-m", "llmhost", "--version"]
    try:
        runs = subprocess.run(command, cwd="/", capture_output=True, check=False, timeout=_SYSTEMCTL_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        runs = None
    if runs is None or runs.returncode != 0:
        raise _CannotError(f"{' '.join(command[:-1])} does not run, and the drop-in would run that: install llmhost")


def _notes(settings: Mapping[str, str]) -> Iterator[str]:
    """Warn of what may disable the guard, or expose root; a line each."""
    if settings.get("DefaultDependencies") == "no" and _AFTER_BUS.isdisjoint(settings.get("After", "").split()):
        yield (
            "the service may start before D-Bus does (DefaultDependencies=no), and then the guard lets it start "
            "without knowing what it needs; After=dbus.socket mends that"
        )
    if note := success_note(settings.get("SuccessExitStatus", "")):
        yield note
    for path in (Path(sys.executable), Path(llmhost.__file__)):
        found = path.stat()
        if found.st_uid != 0 or found.st_mode & 0o022:
            yield f"root will run {path}, which others than root may change; better install llmhost as root"
            return


def _has_guard(settings: Mapping[str, str]) -> bool:
    return any(is_guard(argv.split()) for argv in _ARGV.findall(settings.get("ExecStartPre", "")))


def _reload(unit: str, what_then: str, *, is_so: Callable[[Mapping[str, str]], bool]) -> bool:
    """Reload systemd; return whether the unit's settings are as they should be, or True if it could not be reloaded."""
    done = _systemctl("daemon-reload")
    if done is None or done.returncode != 0:
        why = done.stderr.strip().splitlines()[-1:] if done is not None else ["systemctl cannot be run"]
        complain(f"systemd has not read it yet ({''.join(why)}): run systemctl daemon-reload")
        return True
    try:
        _, settings = _unit(unit)
    except _CannotError:  # the service has gone, and its drop-in after it
        settings = {}
    if not is_so(settings):
        return False
    write_out(f"systemd has read it. {what_then} of {unit}; what runs now goes on.\n")
    return True


def _named(given: str) -> str:
    name = given if given.endswith(".service") else f"{given}.service"
    if "/" in name or name.startswith((".", "-")) or not name.isprintable():
        raise _CannotError(f"{given!r} is no name of a service")
    return name


def _unit(given: str) -> tuple[str, Mapping[str, str]]:
    """Find the unit's real name and its settings. A template, vllm@.service, is known by an instance of it."""
    name = _named(given)
    instance = name.replace("@.service", "@llmhost.service") if name.endswith("@.service") else name
    done = _systemctl("show", f"--property={_PROPERTIES}", "--", instance)
    if done is None:
        raise _CannotError("systemctl cannot be run: is systemd what this machine runs?")
    if done.returncode != 0:
        raise _CannotError(f"systemctl show {instance}: {' '.join(done.stderr.split())}")
    settings: dict[str, str] = {}
    for line in done.stdout.splitlines():
        key, _, value = line.partition("=")
        settings[key] = f"{settings[key]} {value}" if key in settings else value  # a line for each command
    if settings.get("LoadState") == "not-found":
        raise _CannotError(f"systemd has no unit {name}")
    if settings.get("LoadState") not in {"loaded", "masked"}:
        raise _CannotError(f"systemd cannot load {name}: {settings.get('LoadError', '')}")
    if settings["LoadState"] == "masked":
        raise _CannotError(f"{name} is masked: it cannot start, with a guard or without one")
    return name if name != instance else settings["Id"], settings


def _systemctl(*arguments: str) -> "subprocess.CompletedProcess[str] | None":
    systemctl = shutil.which("systemctl")
    if systemctl is None:
        return None
    try:
        return subprocess.run(
            [systemctl, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=_SYSTEMCTL_SECONDS,
            env={**os.environ, "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None


def _shipped() -> str:
    """Read systemd/guard.conf: it is in the wheel, and at the root of a checkout."""
    package = Path(llmhost.__file__).parent
    for path in (package / "_assets/systemd/guard.conf", package.parents[1] / "systemd/guard.conf"):
        try:
            return path.read_text(encoding="utf-8")
        except OSError:
            continue
    raise _CannotError(f"guard.conf is missing from the installation at {package}: install llmhost anew")
