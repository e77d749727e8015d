"""`llmhost clean`: show the leftovers of dead engines, and with --apply end and remove them."""

import os
import time
from contextlib import ExitStack
from dataclasses import replace

from llmhost.act.carry_out import Interrupted, Interrupts, carry_out
from llmhost.assemble.host_reader import HostReader
from llmhost.assemble.sources import Sources
from llmhost.cli import terminal
from llmhost.cli.exits import Exit
from llmhost.cli.named_units import NoSuchUnitError, units_meant
from llmhost.cli.output import complain, write_answer
from llmhost.cli.requests import CleanRequest
from llmhost.config.load import ConfigError
from llmhost.decide.cleanup.context import ProcessContext
from llmhost.decide.cleanup.plan import CLEANED, plan, seconds_to_wait, to_ask_for_use
from llmhost.decide.cleanup.steps import CleanupReport, CleanupRequest, Plan
from llmhost.derive.host_view import HostView
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok
from llmhost.state.cleanup_lock import BusyError, cleanup_lock
from llmhost.state.directory import StoreError
from llmhost.views.clean.as_json import clean_json
from llmhost.views.clean.text import plan_text, report_text
from llmhost.views.text import span


class _WrongUseError(Exception):
    """str() is one line, fit for a terminal."""


def run(request: CleanRequest) -> int:
    try:
        selected = _selection(request)
        reader = HostReader(
            request.config, request.state_directory, request.paths, units=[unit.name for unit in request.units]
        )
    except (_WrongUseError, ConfigError, StoreError) as error:
        complain(str(error))
        return Exit.WRONG_USE
    with reader, Interrupts() as interrupts:
        try:
            return _clean(request, selected, reader, interrupts)
        except NoSuchUnitError as error:
            complain(str(error))
            return Exit.WRONG_USE
        except Interrupted as interrupted:
            complain("interrupted; nothing was done")
            return interrupted.status


def _clean(request: CleanRequest, selected: CleanupRequest, reader: HostReader, interrupts: Interrupts) -> int:
    sources = Sources(reader.config, request.paths)
    view = reader.read()
    units = units_meant(view, request.units, _remembered(view))
    request, selected = replace(request, units=units), replace(selected, units=frozenset(units))
    first = plan(view, selected, _context(sources, view))
    wait_seconds = seconds_to_wait(first, view.policy)
    if not request.apply or reader.config_fault:
        _show_plan(request, first, wait_seconds, reader.config_fault)
        if request.apply:
            complain("--apply removes nothing while the config has a mistake: grace times and kinds may be other ones")
        return Exit.WRONG_USE if request.apply else _status_of(first)
    if not first.steps and not first.waiting:
        _show_report(request, CleanupReport(plan=first))
        return _status_of(first)
    _wait(view.snapshot.at_monotonic + wait_seconds, wait_seconds)
    view = reader.read()
    second = plan(view, selected, _context(sources, view), first)
    report = _carried_out(second, request, interrupts)
    _show_report(request, report)
    if report.interrupted_by:
        return 128 + report.interrupted_by  # as in a shell
    if not report.plan.steps:
        return _status_of(report.plan)
    return Exit.GOOD if report.complete else Exit.FINDINGS


def _carried_out(plan: Plan, request: CleanRequest, interrupts: Interrupts) -> CleanupReport:
    """Carry a plan out, one clean-up at a time. Where there can be no lock, none keeps the leftovers from going."""
    with ExitStack() as stack:
        if plan.steps:
            try:
                stack.enter_context(cleanup_lock(request.paths.run))
            except StoreError as error:
                complain(str(error))
            except BusyError as error:
                return CleanupReport(plan=Plan(refused=f"{error}: clean again once it has ended"))
        return carry_out(plan, request.paths, interrupts)


def _wait(until_monotonic: float, seconds: float) -> None:
    complain(f"looking again in {span(seconds)}, to do what both looks say; until then Ctrl-C stops it")
    while (remaining := until_monotonic - time.monotonic()) > 0:
        time.sleep(remaining)


def _context(sources: Sources, view: HostView) -> ProcessContext:
    table = view.snapshot.processes
    everybody = tuple(table.value.by_pid.values()) if isinstance(table, Ok) else ()
    return sources.process_context(tuple(to_ask_for_use(view)), everybody)


def _status_of(plan: Plan) -> Exit:
    if plan.refused:
        return Exit.CANNOT_TELL
    if plan.steps:
        return Exit.FINDINGS
    return Exit.CANNOT_TELL if plan.waiting or plan.unknowns else Exit.GOOD


def _show_plan(request: CleanRequest, plan: Plan, wait_seconds: float, config_fault: str) -> None:
    if request.json:
        write_answer(clean_json(plan))
    else:
        text = plan_text(plan, wait_seconds, width=terminal.width(), colour=terminal.wants_colour())
        write_answer(terminal.first_line(config_fault) + text)


def _show_report(request: CleanRequest, report: CleanupReport) -> None:
    if request.json:
        write_answer(clean_json(report.plan, report))
    else:
        write_answer(report_text(report, width=terminal.width(), colour=terminal.wants_colour()))


def _selection(request: CleanRequest) -> CleanupRequest:
    names = {str(kind): kind for kind in CLEANED}
    for kind in request.kinds:
        if kind not in names:
            raise _WrongUseError(f"--kind {kind}: what is cleaned is {', '.join(names)}")
    uid = os.geteuid()
    if request.all_users and uid:
        raise _WrongUseError("--all-users is for root")
    return CleanupRequest(
        uid=uid,
        units=frozenset(request.units),
        kinds=frozenset(names[kind] for kind in request.kinds),
        older_than_seconds=request.older_than_seconds,
        all_users=request.all_users,
    )


def _remembered(view: HostView) -> set[UnitId]:
    """Find the units that the history knows; a transient one may be nowhere else."""
    runs = {run.unit for run in view.history.process_runs.values()}
    return {*view.history.units, *view.history.segment_units.values(), *runs}
