"""`llmhost status`: GPUs, units and leftovers; the exit code says if the host is healthy."""

import time
from collections.abc import Sequence

from llmhost.assemble.host_reader import HostReader
from llmhost.cli import terminal
from llmhost.cli.exits import Exit
from llmhost.cli.named_units import NoSuchUnitError, of_units, units_meant
from llmhost.cli.output import complain, write_answer
from llmhost.cli.requests import StatusRequest
from llmhost.config.load import ConfigError
from llmhost.decide.health import Level, health_of
from llmhost.model.ids import UnitId
from llmhost.state.directory import StoreError
from llmhost.views.status.as_json import status_json
from llmhost.views.status.text import status_text

_INTERVAL_SECONDS = 2.0  # of --watch
_CODES = {Level.HEALTHY: Exit.GOOD, Level.FINDINGS: Exit.FINDINGS, Level.CANNOT_TELL: Exit.CANNOT_TELL}


def run(request: StatusRequest) -> Exit:
    if request.watch and not terminal.is_terminal():
        complain("--watch needs a terminal to draw on; for programs there is --json")
        return Exit.WRONG_USE
    try:
        names = [unit.name for unit in request.units]
        reader = HostReader(request.config, request.state_directory, request.paths, units=names)
    except (ConfigError, StoreError) as error:
        complain(str(error))
        return Exit.WRONG_USE
    with reader:
        try:
            if request.watch:
                return _watch(reader, request.units)
            text, code = _shown(reader, request.units, as_json=request.json, redrawn=False)
        except NoSuchUnitError as error:
            complain(str(error))
            return Exit.WRONG_USE
        write_answer(text)
        return code


def _shown(reader: HostReader, units: Sequence[UnitId], *, as_json: bool, redrawn: bool) -> tuple[str, Exit]:
    view = reader.read() if redrawn else reader.read_with_rates()
    health = health_of(view)
    if units:
        view, health = of_units(view, health, units_meant(view, units, view.history.units))
    if as_json:
        return status_json(view, health, all_starts=bool(units)), _CODES[health.level]
    wide, colour = terminal.width(), terminal.wants_colour()
    text = status_text(view, health, units_alone=bool(units), width=wide, colour=colour)
    return terminal.first_line(view.config_fault) + text, _CODES[health.level]


def _watch(reader: HostReader, units: Sequence[UnitId]) -> Exit:
    """Redraw until Ctrl-C; the exit code is that of the last status."""
    code = Exit.CANNOT_TELL
    with terminal.screen():
        try:
            while True:
                began = time.monotonic()
                text, code = _shown(reader, units, as_json=False, redrawn=True)
                terminal.draw(text)
                time.sleep(max(0.1, began + _INTERVAL_SECONDS - time.monotonic()))
        except KeyboardInterrupt:
            return code
