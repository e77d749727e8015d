"""`llmhost status`: what is on the GPUs, how the units fare, what is left over; healthy or not by exit code."""

import argparse
import time
from typing import TYPE_CHECKING

from llmhost.cli.exits import Exit
from llmhost.cli.options import add_look_options, paths_of

if TYPE_CHECKING:
    from llmhost.assemble.host_reader import HostReader

_EACH_SECONDS = 2.0


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "status",
        help="show GPUs, units and what is left over",
        description="Show who holds the GPUs' memory, how the units fare, what is left over and what cannot be seen.",
        epilog="exit status: 0 healthy, 1 findings, 2 wrong use, 3 cannot tell",
        allow_abbrev=False,
    )
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--json", action="store_true", help="for programs, with a schema_version")
    how.add_argument("--watch", action="store_true", help="draw anew each 2 s, until Ctrl-C")
    add_look_options(parser)
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> Exit:
    # Imported only now, as are all that look: `llmhost` as a whole must start quickly.
    from llmhost.assemble.host_reader import HostReader  # noqa: PLC0415
    from llmhost.cli import terminal  # noqa: PLC0415
    from llmhost.cli.output import complain, write_answer  # noqa: PLC0415
    from llmhost.config.load import ConfigError  # noqa: PLC0415
    from llmhost.state.directory import StoreError  # noqa: PLC0415

    if given.watch and not terminal.is_terminal():
        complain("--watch needs a terminal to draw on; for programs there is --json")
        return Exit.WRONG_USE
    try:
        reader = HostReader(given.config, given.state_directory, paths_of(given))
    except (ConfigError, StoreError) as error:
        complain(str(error))
        return Exit.WRONG_USE
    with reader:
        if given.watch:
            return _watch(reader)
        text, code = _shown(reader, as_json=given.json, redrawn=False)
        write_answer(text)
        return code


def _shown(reader: "HostReader", *, as_json: bool, redrawn: bool) -> tuple[str, Exit]:
    from llmhost.cli import terminal  # noqa: PLC0415
    from llmhost.decide.health import Level, health_of  # noqa: PLC0415
    from llmhost.views.status.as_json import status_json  # noqa: PLC0415
    from llmhost.views.status.text import status_text  # noqa: PLC0415

    view = reader.read() if redrawn else reader.read_with_rates()
    health = health_of(view)
    codes = {Level.HEALTHY: Exit.GOOD, Level.FINDINGS: Exit.FINDINGS, Level.CANNOT_TELL: Exit.CANNOT_TELL}
    if as_json:
        return status_json(view, health), codes[health.level]
    return status_text(view, health, width=terminal.width(), colour=terminal.wants_colour()), codes[health.level]


def _watch(reader: "HostReader") -> Exit:
    """Draw until somebody presses Ctrl-C; the exit code is that of the last look."""
    from llmhost.cli import terminal  # noqa: PLC0415

    code = Exit.CANNOT_TELL
    with terminal.screen():
        try:
            while True:
                began = time.monotonic()
                text, code = _shown(reader, as_json=False, redrawn=True)
                terminal.draw(text)
                time.sleep(max(0.1, began + _EACH_SECONDS - time.monotonic()))
        except KeyboardInterrupt:
            return code
