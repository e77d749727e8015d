"""`llmhost guard --install UNIT`, `--uninstall UNIT` and `--list`: the drop-in that puts the guard before a service."""

import os
import pwd
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

import llmhost
from llmhost.act.drop_ins import SYSTEM, drop_in_of, installed, is_as_written, signed
from llmhost.assemble.unit_settings import read_manager_environment, read_unit_settings
from llmhost.cli.exits import Exit
from llmhost.cli.output import UnwritableError, complain, write_answer
from llmhost.cli.requests import InstallRequest
from llmhost.decide.guard.drop_in import OwnSettings, UnfitError, guard_drop_in_text
from llmhost.decide.guard.refusal import success_note
from llmhost.derive.command import is_guard
from llmhost.guard.exposure import ANY_INSTANCE, environment_exposures, is_roots, python_exposures
from llmhost.model.unit import UnitSettings
from llmhost.runtime.trusted_path import emptied_folder

T = TypeVar("T")

_SYSTEMCTL_SECONDS = 30.0
_RELOAD_SECONDS = 180.0  # generators may take their time; systemctl gives up by itself before that
_PROPERTIES = (
    "Id,LoadState,LoadError,NotifyAccess,TimeoutStartUSec,RestartUSec,DefaultDependencies,After,"
    "StartLimitIntervalUSec,StartLimitBurst,SuccessExitStatus"
)
_AFTER_BUS = frozenset({"basic.target", "sockets.target", "dbus.socket", "dbus.service"})


class _CannotError(Exception):
    """str() is one line."""


def run(request: InstallRequest, *, system: Path = SYSTEM) -> Exit:
    """Do what was asked for. A step that fails is told with its path and its reason."""
    try:
        if request.list_all:
            return _list(system)
        if request.remove:
            return _uninstall(request.unit, system)
        return _install(request.unit, system, as_user=request.as_user)
    except (_CannotError, UnfitError) as error:
        complain(str(error))
    except OSError as error:
        complain(f"{error.filename}: {error.strerror}")
    return Exit.WRONG_USE


def _list(system: Path) -> Exit:
    _say("".join(f"{unit}\n" for unit in installed(system)))
    return Exit.GOOD


def _install(given: str, system: Path, *, as_user: bool) -> Exit:
    unit, instance, shown = _unit(given)
    own = OwnSettings(
        notify_access=shown.get("NotifyAccess", ""),
        timeout_start=shown.get("TimeoutStartUSec", ""),
        restart_delay=shown.get("RestartUSec", ""),
        start_limit_interval=shown.get("StartLimitIntervalUSec", ""),
        start_limit_burst=shown.get("StartLimitBurst", ""),
    )
    body = guard_drop_in_text(_shipped(), sys.executable, own, as_user=as_user)
    drop_in = drop_in_of(unit, system)
    present = drop_in.text()
    if present is not None and not is_as_written(present):
        complain(f"{drop_in.path} is somebody's own, or has been edited: left alone. Move it away first")
        return Exit.FINDINGS
    settings = _settings_of(instance)
    if present is None and _has_guard(settings):
        complain(f"{unit} has a guard already (systemctl cat {unit}): nothing is written")
        return Exit.FINDINGS
    _say(f"{drop_in.path}:\n\n{body}\n")
    _check_root(system)
    if refusal := _refusal(settings, as_user=as_user):
        complain(f"{unit}: nothing is written: {refusal}")
        return Exit.FINDINGS
    if present == signed(body):
        _say("It is there already.\n")
        return Exit.GOOD
    _check_it_runs(settings.sandbox.user if as_user and not is_roots(settings) else "root")
    for note in _notes(shown, own):
        _say(f"Note: {note}\n")
    drop_in.write(body)
    _say(f"Written. Before llmhost is removed: llmhost guard --uninstall {unit}\n")
    return _reload(
        unit,
        "The guard runs at the next start",
        is_so=_has_guard,
        else_=f"the guard will not run: ExecStartPre= of another drop-in takes it away (systemctl cat {unit})",
    )


def _uninstall(given: str, system: Path) -> Exit:
    _check_root(system)
    unit = _named(given)
    drop_in = drop_in_of(unit, system)
    if drop_in.text() is None:
        unit, _, _ = _unit(given)  # its real name, if that was an alias
        drop_in = drop_in_of(unit, system)
    text = drop_in.text()
    if text is None:
        raise _CannotError(f"there is no {drop_in.path}: nothing to remove")
    if not is_as_written(text):
        complain(f"{drop_in.path} is somebody's own, or has been edited: left alone. To remove it: rm {drop_in.path}")
        return Exit.FINDINGS
    drop_in.remove()
    _say(f"Removed {drop_in.path}\n")
    return _reload(
        unit,
        "No guard runs at the next start",
        is_so=lambda now: not _has_guard(now),
        else_=f"{unit} still has a guard (systemctl cat {unit})",
    )


def _say(text: str) -> None:
    """Write to stdout. What is half done is done to its end, also where nobody reads that."""
    try:
        write_answer(text)
    except UnwritableError as error:
        complain(str(error))


def _check_root(system: Path) -> None:
    if os.geteuid() != 0:
        raise _CannotError(f"it takes root to write to {system}")


def _settings_of(instance: str) -> UnitSettings:
    return _of_systemd(f"the settings of {instance}", lambda: read_unit_settings(instance))


def _of_systemd(what: str, read: Callable[[], T]) -> T:
    try:
        return read()
    except (OSError, ValueError, LookupError, subprocess.SubprocessError) as error:
        raise _CannotError(f"systemd cannot be asked for {what}, by busctl: {error}") from error


def _refusal(settings: UnitSettings, *, as_user: bool) -> str:
    """Say why the guard may not be put there, and what to do; "" where it may."""
    if settings.sandbox.root not in {"", "/"}:
        return (
            f"the guard would be looked for in {settings.sandbox.root}, as RootDirectory= and RootImage= hold for it "
            "too, in spite of +. Run it by hand, before the start: llmhost guard --unit UNIT"
        )
    if as_user and not is_roots(settings):
        return ""
    manager = _of_systemd("its environment", read_manager_environment)
    exposed = "; ".join((*environment_exposures(settings, manager), *python_exposures(sys.executable)))
    if not exposed:
        return ""
    way_out = "" if is_roots(settings) else ", or let the guard be the service's user, by --as-user"
    return f"root would run what others can change: {exposed}. Make that root's alone{way_out}"


def _check_it_runs(user: str) -> None:
    """Check that the drop-in's command runs: with -I neither PYTHONPATH= nor a user's own packages count."""
    command = [sys.executable, "-I", "-m", "llmhost", "--version"]
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user or "nobody")
    except KeyError:  # of an instance that is to come
        return
    is_root = entry.pw_uid == 0
    try:
        runs = subprocess.run(
            command,
            cwd="/",
            capture_output=True,
            check=False,
            timeout=_SYSTEMCTL_SECONDS,
            user=None if is_root else entry.pw_uid,
            group=None if is_root else entry.pw_gid,
            extra_groups=None if is_root else [],
        )
    except (OSError, subprocess.TimeoutExpired):
        runs = None
    if runs is None or runs.returncode != 0:
        by = "" if is_root else f" as {entry.pw_name}"
        raise _CannotError(
            f"{' '.join(command[:-1])} does not run{by}, and the drop-in would run that: install llmhost"
        )


def _notes(shown: Mapping[str, str], own: OwnSettings) -> Iterator[str]:
    """Warn of what may disable the guard, or is not as it is shipped; a line each."""
    if shown.get("DefaultDependencies") == "no" and _AFTER_BUS.isdisjoint(shown.get("After", "").split()):
        yield (
            "the service may start before D-Bus does (DefaultDependencies=no), and then the guard lets it start "
            "without knowing what it needs; After=dbus.socket mends that"
        )
    if note := success_note(shown.get("SuccessExitStatus", "")):
        yield note
    if own.keeps_start_limit:
        yield (
            f"the service keeps its own start limit (StartLimitIntervalSec={own.start_limit_interval}, "
            f"StartLimitBurst={own.start_limit_burst}); where it has none, it is restarted for ever"
        )
    if folder := emptied_folder(sys.executable):
        yield f"{sys.executable} is below {folder}, which is emptied now and then: better install llmhost elsewhere"


def _has_guard(settings: UnitSettings) -> bool:
    return any(map(is_guard, settings.exec_start_pre))


def _reload(unit: str, what_then: str, *, is_so: Callable[[UnitSettings], bool], else_: str) -> Exit:
    """Have systemd read it, and check that the unit's settings are as they should be then."""
    try:
        done = _systemctl("daemon-reload", seconds=_RELOAD_SECONDS)
        failure = "" if done.returncode == 0 else "".join(done.stderr.strip().splitlines()[-1:])
    except _CannotError as error:
        failure = str(error)
    if failure:
        complain(f"systemd has not read it yet ({failure}): run systemctl daemon-reload")
        return Exit.CANNOT_TELL
    try:
        _, instance, _ = _unit(unit)
        settings = _settings_of(instance)
    except _CannotError:  # the service has gone, and its drop-in after it
        settings = UnitSettings()
    if not is_so(settings):
        complain(else_)
        return Exit.FINDINGS
    _say(f"systemd has read it. {what_then} of {unit}; what runs now goes on.\n")
    return Exit.GOOD


def _named(given: str) -> str:
    name = given if given.endswith(".service") else f"{given}.service"
    if "/" in name or name.startswith((".", "-")) or not name.isprintable():
        raise _CannotError(f"{given!r} is no name of a service")
    return name


def _unit(given: str) -> tuple[str, str, Mapping[str, str]]:
    """Find the unit's real name, the name that systemd can be asked by, and its settings.

    A template, vllm@.service, is known by an instance of it.
    """
    name = _named(given)
    instance = name.replace("@.service", f"@{ANY_INSTANCE}.service") if name.endswith("@.service") else name
    done = _systemctl("show", f"--property={_PROPERTIES}", "--", instance)
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
    return name if name != instance else settings["Id"], instance, settings


def _systemctl(*arguments: str, seconds: float = _SYSTEMCTL_SECONDS) -> "subprocess.CompletedProcess[str]":
    systemctl = shutil.which("systemctl")
    if systemctl is None:
        raise _CannotError("there is no systemctl: is systemd what this machine runs?")
    try:
        return subprocess.run(
            [systemctl, *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=seconds,
            env={**os.environ, "LC_ALL": "C"},
        )
    except OSError as error:
        raise _CannotError(f"{systemctl} cannot be run: {error.strerror}") from error
    except subprocess.TimeoutExpired as error:
        raise _CannotError(f"systemctl {arguments[0]} has not answered for {seconds:g} s") from error


def _shipped() -> str:
    """Read systemd/guard.conf: it is in the wheel, and at the root of a checkout."""
    package = Path(llmhost.__file__).parent
    for path in (package / "_assets/systemd/guard.conf", package.parents[1] / "systemd/guard.conf"):
        try:
            return path.read_text(encoding="utf-8")
        except OSError:
            continue
    raise _CannotError(f"guard.conf is missing from the installation at {package}: install llmhost anew")
