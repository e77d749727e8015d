"""`llmhost guard`: wait until a service would find on its GPUs what it needs. The options, and what becomes of a fault.

Meant for ExecStartPre=. It is imported by every command, so it imports nothing that takes time; nor must a fault of
what it imports later keep a fleet from starting.
"""

import argparse
import logging
import math
import os
import re
import shutil
import signal
import sys
import time
from pathlib import Path

from llmhost.cli.exits import Exit
from llmhost.cli.options import file, named

log = logging.getLogger(__name__)

SWITCH = "guard.off"  # in the run directory
_VARIABLE = "LLMHOST_GUARD"
_TERMINATED = 128 + 15  # as a shell has it for SIGTERM
_RATIO = re.compile(r"[01]?\.[0-9]+|1")


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "guard",
        help="wait until a service's GPUs have free what it needs",
        description="Wait until a service's GPUs have free what it needs, and their memory stands still. For "
        "ExecStartPre= of the service; with a COMMAND, run that once they have.",
        epilog="Exit codes: 0 free, or let on (the guard is switched off, --on-unknown=admit, or, unless "
        "--on-fault=refuse, a fault of its own, a broken config in a service's start among them); 1 held, 2 wrong use, "
        "3 cannot tell, 4 own fault, 143 ended by SIGTERM. To let every start go on: create /run/llmhost/guard.off, or "
        "set LLMHOST_GUARD=off.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("--unit", metavar="UNIT", help="default: the service that this runs in")
    add("--gpus", type=_gpus, default=(), metavar="LIST", help="indexes, UUIDs or PCI bus ids; default: the service's")
    add(
        "--need-free",
        type=_need,
        metavar="SIZE|RATIO",
        help="what must be free on each GPU; default: what the service's engine will ask for",
    )
    add(
        "--max-used",
        type=_size,
        default=1000 << 20,
        metavar="SIZE",
        help="where that is not known: less than this must be in use; default: 1000MiB",
    )
    add("--need-shm", type=_size, metavar="SIZE", help="what must be free in /dev/shm")
    add("--settle", type=_time, default=1.0, metavar="TIME", help="how long memory must stand still; default: 1s")
    add("--timeout", type=_time, default=150.0, metavar="TIME", help="the longest wait; default: 150s")
    add(
        "--on-unknown",
        choices=("refuse", "admit"),
        default="refuse",
        help="when the driver cannot serve; default: refuse",
    )
    add("--on-fault", choices=("admit", "refuse"), default="admit", help="when the guard fails itself; default: admit")
    add(
        "--reap",
        action="store_true",
        help="end what ended runs of the service have left running: proven to be its, and nothing that still listens",
    )
    add("--clean-shm", action="store_true", help="remove the stale files of shared memory that its ended runs held")
    add("--config", type=file, metavar="FILE", help="default: /etc/llmhost/llmhost.yml, if it is there")
    add("--state-dir", dest="state_directory", type=named, metavar="DIR", help="default: /var/lib/llmhost")
    add("--run-dir", dest="run_directory", type=named, default=Path("/run/llmhost"), metavar="DIR", help=_RUN_HELP)
    add(
        "--install", metavar="UNIT", help="no wait: write the drop-in that puts the guard before a service, and show it"
    )
    add("--uninstall", metavar="UNIT", help="no wait: remove that drop-in")
    add("command", nargs="*", metavar="-- COMMAND", help="a command to run once free")
    parser.set_defaults(run=run)


_RUN_HELP = "where runs are recorded; default: /run/llmhost"


def run(given: argparse.Namespace) -> int:
    """Wait; give the exit code, or become the command."""
    if given.install is not None or given.uninstall is not None:
        from llmhost.cli import guard_install  # noqa: PLC0415 - see above

        if given.install is not None and given.uninstall is not None:
            sys.stderr.write("llmhost: --install and --uninstall do not go together\n")
            return Exit.WRONG_USE
        if given.install is not None:
            return guard_install.install(given.install)
        return guard_install.uninstall(given.uninstall)
    began = time.monotonic()
    logging.getLogger("llmhost.collect").setLevel(logging.ERROR)  # what it tells of readings, the guard's lines do too
    if given.command and shutil.which(given.command[0]) is None:
        sys.stderr.write(f"llmhost: there is no program {given.command[0]}\n")
        return Exit.WRONG_USE
    off = _switched_off(given.run_directory)
    if off:
        log.warning("the guard is switched off by %s: the start goes on, whatever is on the GPUs", off)
        return _admitted(given)
    try:
        # Imported only here: see above.
        from llmhost.assemble.guard_sources import Gpus  # noqa: PLC0415
        from llmhost.collect.clock import SystemClock  # noqa: PLC0415

        gpus = Gpus(procfs=Path("/proc"), clock=SystemClock())
        gpus.ask()  # its child starts up while the rest is read in

        from llmhost.guard.inputs import WrongUseError  # noqa: PLC0415
        from llmhost.guard.run import guarded  # noqa: PLC0415
        from llmhost.model.guard_run import GuardVerdict  # noqa: PLC0415
    except Exception:
        log.exception("this is a bug in llmhost")
        return _after_fault(given)
    try:
        ended = guarded(given, gpus, began)
    except WrongUseError as error:
        sys.stderr.write(f"llmhost: {error}\n")
        return Exit.WRONG_USE
    except Exception:
        log.exception("this is a bug in llmhost")
        return _after_fault(given)
    if ended.terminated:
        return Exit.GOOD if ended.unit_is_stopping else _TERMINATED
    if ended.verdict is GuardVerdict.HELD:
        return Exit.FINDINGS
    if ended.verdict is GuardVerdict.UNKNOWN and given.on_unknown == "refuse":
        return Exit.CANNOT_TELL
    if ended.verdict is GuardVerdict.FAULT:
        return _after_fault(given)
    return _admitted(given)


def _after_fault(given: argparse.Namespace) -> int:
    if given.on_fault == "refuse":
        log.error("the guard itself has failed, and the start is refused, as --on-fault=refuse says")
        return Exit.OWN_FAULT
    log.warning("the guard itself has failed: the start goes on, whatever is on the GPUs (--on-fault=refuse refuses)")
    return _admitted(given)


def _admitted(given: argparse.Namespace) -> int:
    if not given.command:
        return Exit.GOOD
    for stream in (sys.stdout, sys.stderr):
        if stream is not None:
            stream.flush()
    for number in (signal.SIGPIPE, signal.SIGXFSZ):
        signal.signal(number, signal.SIG_DFL)  # Python ignores them, and what is executed would inherit that
    try:
        os.execvp(given.command[0], given.command)  # noqa: S606 - what it was asked to run, and no shell
    except OSError as error:
        sys.stderr.write(f"llmhost: {given.command[0]} cannot be run: {error.strerror}\n")
        return Exit.WRONG_USE


def _switched_off(run_directory: Path) -> str:
    """Say what switches the guard off; "" where nothing does. A switch of another user's is none."""
    if os.environ.get(_VARIABLE, "").strip().lower() == "off":
        return f"{_VARIABLE}=off"
    switch = run_directory / SWITCH
    try:
        owner = switch.lstat().st_uid
    except OSError:
        return ""
    return str(switch) if owner in {0, os.geteuid()} else ""


def _gpus(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(",") if name.strip())
    if not names:
        raise argparse.ArgumentTypeError("names no GPU")
    return names


def _need(text: str) -> int | float:
    """Give bytes for a size, a float for a ratio."""
    if _RATIO.fullmatch(text):
        ratio = float(text)
        if not 0 < ratio <= 1:
            raise argparse.ArgumentTypeError("a ratio is above 0, and at most 1")
        return ratio
    return _size(text)


def _size(text: str) -> int:
    from llmhost.config.quantities import QuantityError, parse_size  # noqa: PLC0415 - see above

    try:
        return parse_size(text)
    except QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _time(text: str) -> float:
    from llmhost.config.quantities import QuantityError, parse_time  # noqa: PLC0415 - see above

    try:
        seconds = parse_time(text)
    except QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not math.isfinite(seconds):
        raise argparse.ArgumentTypeError("too long")
    return seconds
