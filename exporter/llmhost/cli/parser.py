"""The command line: every option of every command, parsed into one typed request.

For the guard only the guard's own options are set up, and nothing of other commands is imported: it must start at once,
also where another command is broken.
"""

from __future__ import annotations

import argparse
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

from llmhost import __version__
from llmhost.cli import argument_types
from llmhost.cli.exits import Exit
from llmhost.config.paths import DEFAULT_CONFIG, DEFAULT_STATE, Paths
from llmhost.guard.request import GuardRequest
from llmhost.runtime.option_parser import OptionParser

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from llmhost.cli import requests

    AddParser: TypeAlias = Callable[..., OptionParser]
    CommandRequest: TypeAlias = (
        GuardRequest
        | requests.InstallRequest
        | requests.ServeRequest
        | requests.StatusRequest
        | requests.DoctorRequest
        | requests.CleanRequest
        | requests.DriverPauseRequest
        | requests.CheckConfigRequest
    )

_LEVELS = ("debug", "info", "warning", "error")

_GUARD_EXITS = (
    "exit status: 0 free, or admitted for another reason (the guard is switched off; --on-unknown=admit; a fault of "
    "the guard itself, such as a broken config in a service's start, unless --on-fault=refuse); 1 held; 2 wrong use; "
    "3 cannot tell; 4 the guard itself has failed; 143 ended by SIGTERM. To admit every start, create "
    "/run/llmhost/guard.off or set LLMHOST_GUARD=off."
)
_CLEAN_EXITS = (
    "exit status: 0 nothing to clean, or with --apply all done; 1 there is something to clean, or with --apply some of "
    "it could not be done; 2 wrong use; 3 cannot tell: refused, or candidates could not be read or have not been "
    "watched for long enough. A candidate that is skipped because it came into use counts as done. On Ctrl-C or "
    "SIGTERM the current step is finished, the remaining steps are listed, and the status is 130 or 143."
)


def parse(arguments: Sequence[str]) -> CommandRequest:
    """Parse the arguments of `llmhost`. Raises SystemExit after --help, --version and wrong use, as argparse does."""
    parser = OptionParser(
        prog="llmhost",
        usage="llmhost COMMAND [OPTION]...",
        description="Which systemd unit holds which GPU memory, and is it safe to start.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"llmhost {__version__}")
    commands = parser.add_subparsers(prog="llmhost", title="commands", metavar="COMMAND", required=True)
    add_parser = partial(_add_parser, commands)
    if list(arguments[:1]) != ["guard"]:
        _add_commands(add_parser)
    _add_guard(add_parser)
    parser.require_known(arguments, commands.choices)
    found, unknown = parser.parse_known_args(arguments)
    options = vars(found)
    command, make = options.pop("parser"), options.pop("make")
    if unknown:
        command.error_of_unknown(unknown)  # with the usage of that command
    if options.get("install") is not None and options.get("uninstall") is not None:
        command.exit(Exit.WRONG_USE, "llmhost: --install and --uninstall do not go together\n")
    if options.get("as_user") and options.get("install") is None:
        command.exit(Exit.WRONG_USE, "llmhost: --as-user goes with --install: it writes that drop-in without +\n")
    values = {name: tuple(value) if isinstance(value, list) else value for name, value in options.items()}
    request: CommandRequest = make(**values)
    return request


def _add_parser(commands: argparse._SubParsersAction[OptionParser], name: str, **given: Any) -> OptionParser:  # noqa: ANN401
    operands = {"guard": " [-- COMMAND]", "check-config": " [FILE]", "status": " [UNIT]...", "doctor": " [UNIT]..."}
    usage = f"llmhost {name} [OPTION]...{operands.get(name, '')}"
    parser = commands.add_parser(name, usage=usage, allow_abbrev=False, **given)
    parser.set_defaults(parser=parser)
    return parser


def _add_guard(add_parser: AddParser) -> None:
    parser = add_parser(
        "guard",
        help="wait until a service's GPUs have free what it needs",
        description="Wait until the GPUs of a service have free what it needs, and their memory use is stable. For "
        "ExecStartPre= of the service; with a COMMAND, run it once they have.",
        epilog=_GUARD_EXITS,
    )
    add = parser.add_argument
    add("--unit", metavar="UNIT", help="default: the service that this runs in")
    add(
        "--gpus",
        type=argument_types.gpus,
        default=(),
        metavar="LIST",
        help="indexes, UUIDs or PCI bus ids; default: the service's own",
    )
    add(
        "--need-free",
        type=argument_types.size_or_ratio,
        metavar="SIZE|RATIO",
        help="memory that must be free on each GPU; default: what the service's engine will ask for",
    )
    add(
        "--max-used",
        dest="max_used_bytes",
        type=argument_types.size,
        default=1000 << 20,
        metavar="SIZE",
        help="where that is not known: memory in use must be below this; default: 1000MiB",
    )
    add(
        "--need-shm",
        dest="need_shm_bytes",
        type=argument_types.size,
        metavar="SIZE",
        help="space that must be free in /dev/shm",
    )
    add(
        "--settle",
        dest="settle_seconds",
        type=argument_types.finite_time,
        default=1.0,
        metavar="TIME",
        help="how long memory use must be stable; default: 1s",
    )
    add(
        "--timeout",
        dest="timeout_seconds",
        type=argument_types.finite_time,
        default=150.0,
        metavar="TIME",
        help="the longest wait; default: 150s",
    )
    add(
        "--on-unknown",
        choices=("refuse", "admit"),
        default="refuse",
        help="if the driver cannot be read; default: refuse",
    )
    add("--on-fault", choices=("admit", "refuse"), default="admit", help="if the guard itself fails; default: admit")
    add(
        "--reap",
        action="store_true",
        help="end processes that ended runs of the service have left, as far as that is proven and they do not listen",
    )
    add("--clean-shm", action="store_true", help="remove stale shared-memory segments that its ended runs held")
    add("--config", type=argument_types.file_name, metavar="FILE", help=f"default: {DEFAULT_CONFIG}, if it is there")
    add(
        "--state-dir",
        dest="state_directory",
        type=argument_types.directory_name,
        metavar="DIR",
        help=f"default: {DEFAULT_STATE}",
    )
    add(
        "--run-dir",
        dest="run_directory",
        type=argument_types.directory_name,
        default=Paths().run,
        metavar="DIR",
        help=f"where runs are recorded; default: {Paths().run}",
    )
    add("--install", metavar="UNIT", help="do not wait: write the drop-in that puts the guard before UNIT, and show it")
    add("--as-user", action="store_true", help="with --install: the guard is the service's user, in its sandbox")
    add("--uninstall", metavar="UNIT", help="do not wait: remove that drop-in")
    add("--list", action="store_true", help="do not wait: list the services that have that drop-in")
    add("command", nargs="*", metavar="-- COMMAND", help="a command to run once free")
    parser.set_defaults(make=_guard_request)


def _guard_request(
    *,
    need_free: object,
    on_unknown: str,
    on_fault: str,
    install: str | None,
    uninstall: str | None,
    as_user: bool,
    list: bool,  # noqa: A002 - as the option is called
    **options: object,
) -> GuardRequest | requests.InstallRequest:
    unit = "" if list else install if uninstall is None else uninstall
    if unit is not None:
        from llmhost.cli.requests import InstallRequest  # noqa: PLC0415 - no start waits for it

        return InstallRequest(unit=unit, remove=uninstall is not None, as_user=as_user, list_all=list)
    return GuardRequest(
        need_free_bytes=need_free if isinstance(need_free, int) else None,
        need_free_ratio=need_free if isinstance(need_free, float) else None,
        admit_on_unknown=on_unknown == "admit",
        refuse_on_fault=on_fault == "refuse",
        **options,  # type: ignore[arg-type] # of the types that the options above have
    )


def _add_commands(add_parser: AddParser) -> None:
    from llmhost.cli import requests  # noqa: PLC0415 - see above

    parser = add_parser(
        "serve",
        help="serve /metrics (with --once: print one page)",
        description="Serve /metrics for Prometheus, or print one page.",
    )
    _add_host_options(parser, requests.ServeRequest, state_directory_help="where history is kept")
    parser.add_argument(
        "--web.listen-address",
        dest="listen",
        type=argument_types.listen_address,
        metavar="[HOST]:PORT",
        help="default: :10061",
    )
    parser.add_argument("--once", action="store_true", help="print one page and exit")
    parser.add_argument("--log.level", dest="log_level", choices=_LEVELS, default="info", help="default: info")

    parser = add_parser(
        "check-config",
        help="check a config file and print the resulting config",
        description="Check a config file and print the resulting config, defaults included.",
    )
    parser.add_argument("file", nargs="?", type=Path, metavar="FILE", help=f"default: {DEFAULT_CONFIG}")
    parser.set_defaults(make=requests.CheckConfigRequest)

    parser = add_parser(
        "status",
        help="show GPUs, units and leftovers",
        description="Show who holds GPU memory, the state of the units, leftovers of ended runs, and what could not be "
        "read.",
        epilog="exit status: 0 healthy, 1 findings, 2 wrong use, 3 cannot tell; of UNIT, if any is named",
    )
    parser.add_argument(
        "units", nargs="*", type=argument_types.unit_instance, metavar="UNIT", help="these alone, with all their starts"
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="print JSON, with a schema_version")
    how.add_argument("--watch", action="store_true", help="redraw every 2 s, until Ctrl-C")
    _add_host_options(parser, requests.StatusRequest)

    parser = add_parser(
        "doctor",
        help="find settings that will cause trouble, and print the fixes",
        description="Check units' settings against what was measured of their runs, and print a fix for each finding.",
        epilog="exit status: 0 no findings, or notes alone; 1 errors or warnings; 2 wrong use; 3 no answer by systemd",
    )
    parser.add_argument(
        "units", nargs="*", type=argument_types.unit_instance, metavar="UNIT", help="default: all watched units"
    )
    parser.add_argument("--json", action="store_true", help="print JSON, with a schema_version")
    _add_host_options(parser, requests.DoctorRequest)

    parser = add_parser(
        "clean",
        help="show leftovers of dead engines, and with --apply remove them",
        description="Show orphaned processes and shared-memory segments that ended engines have left, and other "
        "candidates with the reason to keep them. Nothing is changed without --apply.",
        epilog=_CLEAN_EXITS,
    )
    parser.add_argument(
        "--apply", action="store_true", help="plan twice, some seconds apart, and carry out what both plans have"
    )
    parser.add_argument(
        "--unit",
        dest="units",
        action="append",
        default=[],
        type=argument_types.unit_name,
        metavar="UNIT",
        help="only leftovers known to belong to UNIT",
    )
    parser.add_argument(
        "--kind",
        dest="kinds",
        action="append",
        default=[],
        metavar="KIND",
        help="only orphan, tracker, or a kind of segments, as `llmhost status` names them",
    )
    parser.add_argument(
        "--older-than",
        dest="older_than_seconds",
        default=0.0,
        type=argument_types.time,
        metavar="TIME",
        help="only processes that started, and segments that changed, at least this long ago",
    )
    parser.add_argument("--all-users", action="store_true", help="also end processes of other users (root only)")
    parser.add_argument("--json", action="store_true", help="print JSON, with a schema_version")
    _add_host_options(parser, requests.CleanRequest)

    parser = add_parser(
        "release",
        help="have the exporter keep off the NVIDIA driver for a while",
        description="Have the exporter close the NVIDIA driver and keep off it, for a GPU reset, a MIG change or a new "
        "driver. It comes back by itself. A later release replaces an earlier one.",
        epilog="exit status: 0 nothing of llmhost has the driver open, 1 something has, 2 wrong use, 3 cannot tell",
    )
    duration = parser.add_mutually_exclusive_group()
    duration.add_argument(
        "--for",
        dest="seconds",
        type=argument_types.pause_time,
        default=requests.DriverPauseRequest().seconds,
        metavar="TIME",
        help="for how long, at most 1h; default: 5m",
    )
    duration.add_argument(
        "--end", dest="seconds", action="store_const", const=None, help="let the exporter read the driver again at once"
    )
    _add_paths(parser, requests.DriverPauseRequest, ("procfs",), run_directory_help="the exporter's")


def _add_host_options(
    parser: argparse.ArgumentParser,
    request: Callable[..., CommandRequest],
    *,
    state_directory_help: str = "where the exporter keeps its history, which is only read",
) -> None:
    """Add the options of a HostRequest."""
    parser.add_argument(
        "--config", type=argument_types.file_name, metavar="FILE", help=f"default: {DEFAULT_CONFIG}, if it is there"
    )
    parser.add_argument(
        "--state-dir",
        dest="state_directory",
        type=argument_types.directory_name,
        metavar="DIR",
        help=f"{state_directory_help}; default: $STATE_DIRECTORY, else {DEFAULT_STATE} if it is there",
    )
    _add_paths(
        parser, request, ("procfs", "shm"), run_directory_help="where guards record their runs, and `release` its pause"
    )


def _add_paths(
    parser: argparse.ArgumentParser,
    request: Callable[..., CommandRequest],
    roots: tuple[str, ...],
    *,
    run_directory_help: str,
) -> None:
    """Add `--run-dir` and `--path.*`, and have `paths` of the request made from them."""
    usual = Paths()
    parser.add_argument(
        "--run-dir",
        dest="run",
        type=argument_types.directory_name,
        default=usual.run,
        metavar="DIR",
        help=f"{run_directory_help}; default: {usual.run}",
    )
    group = parser.add_argument_group("where to read, as node_exporter has it")
    for root in roots:
        default = getattr(usual, root)
        group.add_argument(
            f"--path.{root}",
            dest=root,
            type=argument_types.directory,
            default=default,
            metavar="DIR",
            help=f"default: {default}",
        )

    def make(**options: object) -> CommandRequest:
        paths = {name: options.pop(name) for name in ("run", *roots)}
        return request(paths=Paths(**paths), **options)  # type: ignore[arg-type] # they are paths

    parser.set_defaults(make=make)
