"""`llmhost doctor [UNIT…]`: settings of units that will cause trouble, each with its fix."""

import os
import subprocess
from collections.abc import Iterator

from llmhost.assemble.host_reader import HostReader
from llmhost.assemble.unit_settings import read_manager_environment
from llmhost.cli import terminal
from llmhost.cli.exits import Exit
from llmhost.cli.named_units import NoSuchUnitError, units_meant
from llmhost.cli.output import complain, write_answer
from llmhost.cli.requests import DoctorRequest
from llmhost.config.load import ConfigError
from llmhost.decide.doctor.diagnose import COMPANIONS, diagnose, not_checked
from llmhost.decide.doctor.finding import Severity
from llmhost.derive.host_view import HostView
from llmhost.guard.exposure import guard_exposures
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok
from llmhost.state.directory import StoreError
from llmhost.views.doctor import doctor_json, doctor_text


def run(request: DoctorRequest) -> Exit:
    read = [unit.name for unit in (*request.units, *COMPANIONS)]
    try:
        with HostReader(request.config, request.state_directory, request.paths, units=read) as reader:
            view = reader.read()
        units = list(units_meant(view, request.units))
    except (ConfigError, StoreError, NoSuchUnitError) as error:
        complain(str(error))
        return Exit.WRONG_USE
    findings, unknowns = diagnose(view, units, _exposed(view)), tuple(_not_checked(view, units))
    if request.json:
        write_answer(doctor_json(findings, unknowns))
    else:
        text = doctor_text(findings, unknowns, width=terminal.width(), colour=terminal.wants_colour())
        write_answer(terminal.first_line(view.config_fault) + text)
    if any(finding.severity is not Severity.NOTE for finding in findings):
        return Exit.FINDINGS
    return Exit.GOOD if isinstance(view.snapshot.units, Ok) and not view.config_fault else Exit.CANNOT_TELL


def _exposed(view: HostView) -> dict[UnitId, tuple[str, ...]]:
    """Find what others than root may change of guards that run as root; as root, who sees all."""
    if os.geteuid() != 0 or not isinstance(view.facts.units, Ok):
        return {}
    units = [facts.unit for facts in view.facts.units.value if facts.guarded]
    try:
        manager = read_manager_environment() if units else ()
    except (OSError, ValueError, LookupError, subprocess.SubprocessError):
        manager = ()  # root's own: what the units say counts for more
    return {unit.id: tuple(guard_exposures(unit.settings, manager)) for unit in units if unit.settings is not None}


def _not_checked(view: HostView, units: list[UnitId]) -> Iterator[str]:
    yield from not_checked(view, units)
    facts = view.facts.units.value if isinstance(view.facts.units, Ok) else ()
    if os.geteuid() != 0 and any(each.guarded for each in facts):
        yield "who may change what guards run: only root can see that"
