"""`llmhost guard`: its exit codes, the switch that turns it off, and its own faults.

A fault of anything that the guard needs must not keep a fleet from starting, so that all of it is imported late.
"""

import logging
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from llmhost.cli.exits import Exit
from llmhost.guard.ending_signals import ENDING_SIGNALS
from llmhost.guard.request import GuardRequest
from llmhost.runtime.bounded_call import BoundedCall

if TYPE_CHECKING:
    from llmhost.decide.guard.state import Finish
    from llmhost.model.unit import Unit

log = logging.getLogger(__name__)

SWITCH = "guard.off"  # in the run directory
_VARIABLE = "LLMHOST_GUARD"
_SWITCH_SECONDS = 1.0
_FIRST_SECONDS = 5.0  # for the driver's first answer: a machine that boots has much to do
_HALF_REPLACED = "llmhost is half installed, or half replaced (%s): install it anew"
_CHILD = "llmhost.sources.nvml.child.worker"
_SIGNALLED = 128  # a shell adds the signal's number


def run(request: GuardRequest) -> int:
    """Wait; return the exit code, or become the command."""
    ENDING_SIGNALS.note()
    code, unit = _waited(request)
    return refused(code, unit) if code else code


def refused(code: int, unit: "Unit | None" = None) -> int:
    """Give the code to leave with in place of `code`; `unit` is the one that this runs in, if that is known."""
    if "INVOCATION_ID" not in os.environ:
        return code  # in no unit
    try:
        from llmhost.guard.refusing import refusing

        return refusing(code, unit)
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        _tell(error)
        return code


def _waited(request: GuardRequest) -> "tuple[int, Unit | None]":
    began = time.monotonic()
    logging.getLogger("llmhost.collect").setLevel(logging.ERROR)  # the guard's own lines tell of failed readings
    if request.command and _program(request) is None:
        sys.stderr.write(f"llmhost: there is no program {request.command[0]}\n")
        return Exit.WRONG_USE, None
    _warn_of_changeable_environment(request)
    off = _switched_off(request)
    if off:
        log.warning("the guard is switched off by %s: the start goes on, whatever is on the GPUs", off)
        return _admitted(request), None
    try:
        from llmhost.assemble.sources import GUARD_DRIVER_BACKOFF_SECONDS, Sources

        sources = Sources(driver_backoff_seconds=GUARD_DRIVER_BACKOFF_SECONDS)
        sources.nvml_memory.ask(began + _FIRST_SECONDS)  # the driver's child starts while the rest is imported

        from llmhost.guard.inputs import WrongUseError
        from llmhost.guard.run import guarded
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        _tell(error)
        return _after_fault(request), None
    try:
        end, unit = guarded(request, sources, began)
    except WrongUseError as error:
        sys.stderr.write(f"llmhost: {error}\n")
        return Exit.WRONG_USE, None
    except Exception as error:  # noqa: BLE001 - whatever it is, it is told
        _tell(error)
        return _after_fault(request), None
    return _exit_code(request, end), unit


def _exit_code(request: GuardRequest, end: "Finish") -> int:
    from llmhost.model.guard_run import GuardVerdict

    if end.terminated:
        return Exit.GOOD if end.unit_is_stopping else _SIGNALLED + ENDING_SIGNALS.first
    if end.verdict is GuardVerdict.HELD:
        return Exit.FINDINGS
    if end.verdict is GuardVerdict.UNKNOWN and not _drivers_child_is_whole():
        return _after_fault(request)
    if end.verdict is GuardVerdict.UNKNOWN and not request.admit_on_unknown:
        return Exit.CANNOT_TELL
    if end.verdict is GuardVerdict.FAULT:
        return _after_fault(request)
    return _admitted(request)


def _tell(error: Exception) -> None:
    if isinstance(error, ImportError | SyntaxError):
        log.error(_HALF_REPLACED, f"{type(error).__name__}: {error}")
    else:
        log.error("this is a bug in llmhost", exc_info=error)


def _drivers_child_is_whole() -> bool:
    """Say whether the program that calls the driver can be loaded. Without it the driver tells nothing: a fault."""
    command = [sys.executable, "-I" if sys.flags.isolated else "-P", "-c", f"import {_CHILD}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=_FIRST_SECONDS)
    except (OSError, subprocess.TimeoutExpired):
        return True
    is_broken = done.returncode > 0  # below, a signal has ended it, which says nothing of it
    if is_broken:
        log.error(_HALF_REPLACED, "".join(done.stderr.splitlines()[-1:]))
    return not is_broken


def _after_fault(request: GuardRequest) -> int:
    if request.refuse_on_fault:
        log.error("the guard itself has failed, and the start is refused, as --on-fault=refuse says")
        return Exit.OWN_FAULT
    log.warning("the guard itself has failed: the start goes on, whatever is on the GPUs (--on-fault=refuse refuses)")
    return _admitted(request)


def _admitted(request: GuardRequest) -> int:
    if not request.command:
        return Exit.GOOD
    if ENDING_SIGNALS.first:
        return _SIGNALLED + ENDING_SIGNALS.first
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    ENDING_SIGNALS.release()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and what is executed would inherit that
    try:
        os.execvpe(request.command[0], request.command, dict(request.environment))  # noqa: S606 - what it was asked to run, and no shell
    except OSError as error:
        sys.stderr.write(f"llmhost: {request.command[0]} cannot be run: {error.strerror}\n")
        return Exit.WRONG_USE


def _warn_of_changeable_environment(request: GuardRequest) -> None:
    """Tell of variables that have steered this process before it could drop them, and that others can use for that."""
    if os.geteuid() != 0:
        return
    from llmhost.guard.loader_variables import changeable_variables

    for variable in changeable_variables(request.environment, _working_directory()):
        log.warning("root goes by what others can change: %s. See llmhost doctor", variable)


def _working_directory() -> str:
    try:
        return str(Path.cwd())
    except OSError:  # it has been removed, and nothing is found in it
        return "/"


def _program(request: GuardRequest) -> str | None:
    """Find the command by the PATH that this was started with."""
    return shutil.which(request.command[0], path=dict(request.environment).get("PATH", os.defpath))


def _switched_off(request: GuardRequest) -> str:
    """Say what switches the guard off; "" where nothing does. A switch of another user's is none."""
    if dict(request.environment).get(_VARIABLE, "").strip().lower() == "off":
        return f"{_VARIABLE}=off"
    switch = request.run_directory / SWITCH
    looking = BoundedCall(lambda: switch.lstat().st_uid, name="llmhost-switch")
    try:
        owner = looking.result(time.monotonic() + _SWITCH_SECONDS)
    except TimeoutError:
        log.warning("whether the guard is switched off is not known: %s does not answer", request.run_directory)
        return ""
    except OSError:
        return ""
    return str(switch) if owner in {0, os.geteuid()} else ""
