"""`llmhost doctor [UNIT…]`: what in the units' settings will go wrong, with the lines that mend it."""

import argparse
from typing import TYPE_CHECKING

from llmhost.cli.exits import Exit
from llmhost.cli.options import add_look_options, paths_of
from llmhost.config.unit_pattern import service_name

if TYPE_CHECKING:
    from llmhost.derive.host_view import HostView
    from llmhost.model.ids import UnitId


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "doctor",
        help="find settings that will go wrong, and say what mends them",
        description="Hold units' settings against what was measured of their runs, and say what mends what is wrong.",
        epilog="exit status: 0 nothing, or notes alone; 1 errors or warnings; 2 wrong use; 3 systemd cannot be read",
        allow_abbrev=False,
    )
    parser.add_argument("units", nargs="*", type=_unit, metavar="UNIT", help="default: all that are watched")
    parser.add_argument("--json", action="store_true", help="for programs, with a schema_version")
    add_look_options(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> Exit:
    # Imported only now, as are all that look: `llmhost` as a whole must start quickly.
    from llmhost.assemble.host_reader import HostReader  # noqa: PLC0415
    from llmhost.cli import terminal  # noqa: PLC0415
    from llmhost.cli.output import complain, write_answer  # noqa: PLC0415
    from llmhost.config.load import ConfigError  # noqa: PLC0415
    from llmhost.decide.doctor.diagnose import COMPANIONS, diagnose, not_checked  # noqa: PLC0415
    from llmhost.decide.doctor.finding import Severity  # noqa: PLC0415
    from llmhost.model.ids import UnitId  # noqa: PLC0415
    from llmhost.model.reading import Ok  # noqa: PLC0415
    from llmhost.state.directory import StoreError  # noqa: PLC0415
    from llmhost.views.doctor import doctor_json, doctor_text  # noqa: PLC0415

    units = [UnitId(name) for name in given.units]
    try:
        with HostReader(
            given.config, given.state_directory, paths_of(given), units=[unit.name for unit in (*units, *COMPANIONS)]
        ) as reader:
            view = reader.read()
    except (ConfigError, StoreError) as error:
        complain(str(error))
        return Exit.WRONG_USE
    missing = _missing(view, units)
    if missing is not None:
        complain(f"there is no unit {missing.name}")
        return Exit.WRONG_USE
    findings, unknowns = diagnose(view, units), tuple(not_checked(view, units))
    if given.json:
        write_answer(doctor_json(findings, unknowns))
    else:
        write_answer(doctor_text(findings, unknowns, width=terminal.width(), colour=terminal.wants_colour()))
    if any(finding.severity is not Severity.NOTE for finding in findings):
        return Exit.FINDINGS
    return Exit.GOOD if isinstance(view.snapshot.units, Ok) else Exit.CANNOT_TELL


def _unit(text: str) -> str:
    try:
        name = service_name(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    prefix, at, instance = name.partition("@")
    if at and instance == ".service":
        raise argparse.ArgumentTypeError(f"{name} is a template; name one of its instances, as {prefix}@a.service")
    return name


def _missing(view: "HostView", units: "list[UnitId]") -> "UnitId | None":
    """Find one that was asked for and that systemd does not have."""
    from llmhost.model.reading import Ok  # noqa: PLC0415

    if not isinstance(view.facts.units, Ok):
        return None
    there = {facts.unit.id for facts in view.facts.units.value if facts.unit.load_state != "not-found"}
    return next((unit for unit in units if unit not in there), None)
