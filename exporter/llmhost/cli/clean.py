"""`llmhost clean`: show what is provably dead, and with --apply end and remove that."""

import argparse
import os
import time
from typing import TYPE_CHECKING

from llmhost.cli.exits import Exit
from llmhost.cli.options import add_look_options, paths_of
from llmhost.cli.output import complain

if TYPE_CHECKING:
    from llmhost.act.carry_out import Interrupts
    from llmhost.assemble.host_reader import HostReader
    from llmhost.decide.cleanup.context import Around
    from llmhost.decide.cleanup.steps import CleanupReport, CleanupRequest, Plan
    from llmhost.derive.host_view import HostView
    from llmhost.model.ids import UnitId

_EPILOG = (
    "exit status: 0 nothing to clean, or with --apply all done; 1 there is something to clean, or with --apply some of "
    "it could not be; 2 wrong use; 3 cannot tell: refused, or what there is has not been watched for long enough or "
    "cannot be looked at. What is spared because it came into use meanwhile is done right. At Ctrl-C or SIGTERM the "
    "step under way is finished, and what was not begun is told; the status is 130 or 143."
)


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "clean",
        help="show, or with --apply do away with, what dead engines have left",
        description=(
            "Show orphaned processes and files of shared memory that ended engines have left, and what else looks left "
            "over, with the reason that keeps it. Nothing is done without --apply."
        ),
        epilog=_EPILOG,
        allow_abbrev=False,
    )
    parser.add_argument("--apply", action="store_true", help="look, wait, look again, and do what both looks say")
    parser.add_argument(
        "--unit",
        dest="units",
        action="append",
        default=[],
        type=_unit,
        metavar="UNIT",
        help="only what is known to be its",
    )
    parser.add_argument(
        "--kind",
        dest="kinds",
        action="append",
        default=[],
        metavar="KIND",
        help="only these: orphan, tracker, or a kind of files, as `llmhost status` names them",
    )
    parser.add_argument(
        "--older-than",
        dest="older_than_seconds",
        default=0.0,
        type=_time,
        metavar="TIME",
        help="only processes that started, and files that changed, that long ago",
    )
    parser.add_argument("--all-users", action="store_true", help="end other users' processes as well (root alone)")
    parser.add_argument("--json", action="store_true", help="for programs, with a schema_version")
    add_look_options(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    # Imported only now, as are all that look: `llmhost` as a whole must start quickly.
    from llmhost.act.carry_out import Interrupted, Interrupts  # noqa: PLC0415
    from llmhost.assemble.host_reader import HostReader  # noqa: PLC0415
    from llmhost.config.load import ConfigError  # noqa: PLC0415
    from llmhost.state.directory import StoreError  # noqa: PLC0415

    try:
        request = _request(given)
        reader = HostReader(
            given.config, given.state_directory, paths_of(given), units=[unit.name for unit in request.units]
        )
    except (_WrongUseError, ConfigError, StoreError) as error:
        complain(str(error))
        return Exit.WRONG_USE
    with reader, Interrupts() as interrupts:
        try:
            return _run(given, request, reader, interrupts)
        except _WrongUseError as error:
            complain(str(error))
            return Exit.WRONG_USE
        except Interrupted as interrupted:
            complain("interrupted; nothing was done")
            return interrupted.status


class _WrongUseError(Exception):
    """What was asked for cannot be; str() is for people."""


def _run(given: argparse.Namespace, request: "CleanupRequest", reader: "HostReader", interrupts: "Interrupts") -> int:
    from llmhost.act.carry_out import carry_out  # noqa: PLC0415
    from llmhost.decide.cleanup.plan import plan, seconds_to_wait  # noqa: PLC0415
    from llmhost.decide.cleanup.steps import CleanupReport  # noqa: PLC0415

    view = reader.read()
    _require_known(request.units, view)
    first = plan(view, request, _around(given, view))
    wait_seconds = seconds_to_wait(first, view.policy)
    if not given.apply:
        _show_plan(given, first, wait_seconds)
        return _status_of(first)
    if not first.steps and not first.waiting:
        _show_report(given, CleanupReport(plan=first))
        return _status_of(first)
    _wait(view.snapshot.at_monotonic + wait_seconds, wait_seconds)
    view = reader.read()
    second = plan(view, request, _around(given, view), first)
    report = carry_out(second, paths_of(given), interrupts)
    _show_report(given, report)
    if report.interrupted_by:
        return 128 + report.interrupted_by  # as in a shell
    if not report.plan.steps:
        return _status_of(report.plan)
    return Exit.GOOD if report.complete else Exit.FINDINGS


def _wait(until_monotonic: float, seconds: float) -> None:
    from llmhost.views.text import span  # noqa: PLC0415

    complain(f"looking again in {span(seconds)}, to do what both looks say; until then Ctrl-C stops it")
    while (left := until_monotonic - time.monotonic()) > 0:
        time.sleep(left)


def _around(given: argparse.Namespace, view: "HostView") -> "Around":
    from llmhost.assemble.exporter import read_around  # noqa: PLC0415
    from llmhost.decide.cleanup.plan import to_ask_for_listeners  # noqa: PLC0415
    from llmhost.model.reading import Ok  # noqa: PLC0415

    table = view.snapshot.processes
    everybody = tuple(table.value.by_pid.values()) if isinstance(table, Ok) else ()
    return read_around(paths_of(given), tuple(to_ask_for_listeners(view)), everybody)


def _status_of(plan: "Plan") -> Exit:
    if plan.refused:
        return Exit.CANNOT_TELL
    if plan.steps:
        return Exit.FINDINGS
    return Exit.CANNOT_TELL if plan.waiting or plan.unknowns else Exit.GOOD


def _show_plan(given: argparse.Namespace, plan: "Plan", wait_seconds: float) -> None:
    from llmhost.cli import terminal  # noqa: PLC0415
    from llmhost.cli.output import write_answer  # noqa: PLC0415
    from llmhost.views.clean.as_json import clean_json  # noqa: PLC0415
    from llmhost.views.clean.text import plan_text  # noqa: PLC0415

    if given.json:
        write_answer(clean_json(plan))
    else:
        write_answer(plan_text(plan, wait_seconds, width=terminal.width(), colour=terminal.wants_colour()))


def _show_report(given: argparse.Namespace, report: "CleanupReport") -> None:
    from llmhost.cli import terminal  # noqa: PLC0415
    from llmhost.cli.output import write_answer  # noqa: PLC0415
    from llmhost.views.clean.as_json import clean_json  # noqa: PLC0415
    from llmhost.views.clean.text import report_text  # noqa: PLC0415

    if given.json:
        write_answer(clean_json(report.plan, report))
    else:
        write_answer(report_text(report, width=terminal.width(), colour=terminal.wants_colour()))


def _request(given: argparse.Namespace) -> "CleanupRequest":
    from llmhost.decide.cleanup.plan import CLEANED  # noqa: PLC0415
    from llmhost.decide.cleanup.steps import CleanupRequest  # noqa: PLC0415
    from llmhost.model.ids import UnitId  # noqa: PLC0415

    names = {str(kind): kind for kind in CLEANED}
    for kind in given.kinds:
        if kind not in names:
            message = f"--kind {kind}: what is cleaned is {', '.join(names)}"
            raise _WrongUseError(message)
    uid = os.geteuid()
    if given.all_users and uid:
        message = "--all-users is for root"
        raise _WrongUseError(message)
    return CleanupRequest(
        uid=uid,
        units=frozenset(UnitId(name) for name in given.units),
        kinds=frozenset(names[kind] for kind in given.kinds),
        older_than_seconds=given.older_than_seconds,
        all_users=given.all_users,
    )


def _require_known(units: "frozenset[UnitId]", view: "HostView") -> None:
    """See that somebody knows these units: systemd, or what is recorded of one that was transient."""
    from llmhost.model.reading import Ok  # noqa: PLC0415

    if not isinstance(view.facts.units, Ok):
        return
    known = {facts.unit.id for facts in view.facts.units.value if facts.unit.load_state != "not-found"}
    known |= {*view.history.units, *view.history.segment_units.values()}
    known |= {belonging.unit for belonging in view.history.belongings.values()}
    for unit in sorted(units - known):
        message = f"there is no unit {unit.name}"
        raise _WrongUseError(message)


def _unit(text: str) -> str:
    from llmhost.config.unit_pattern import service_name  # noqa: PLC0415

    try:
        return service_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _time(text: str) -> float:
    from llmhost.config.quantities import QuantityError, parse_time  # noqa: PLC0415

    try:
        return parse_time(text)
    except QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
