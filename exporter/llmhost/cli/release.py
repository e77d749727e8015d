"""`llmhost release`: the exporter lets go of the driver for a while, for a GPU reset, a MIG change or a new driver."""

import argparse
import sys
import threading
import time
from typing import TYPE_CHECKING

from llmhost.cli.exits import Exit
from llmhost.cli.options import directory, named
from llmhost.config.paths import Paths

if TYPE_CHECKING:
    from llmhost.model.driver_user import DriverUsers

_USUAL_SECONDS = 300.0
_PATIENCE_SECONDS = 5.0  # for the exporter to let go, and its child to die
_NOTICED_SECONDS = 1.5  # an exporter looks for a wish twice a second
_STEP_SECONDS = 0.1


def add_parser(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "release",
        help="have the exporter let go of the driver for a while",
        description="Have the exporter let go of the driver, for a GPU reset, a MIG change or a new driver. It comes "
        "back by itself. A later release replaces an earlier one.",
        epilog="exit status: 0 nothing of llmhost has the driver open, 1 something has, 2 wrong use, 3 cannot tell",
        allow_abbrev=False,
    )
    usual = Paths()
    how = parser.add_mutually_exclusive_group()
    how.add_argument(
        "--for",
        dest="seconds",
        type=_time,
        default=_USUAL_SECONDS,
        metavar="TIME",
        help="for how long, at most 1h; default: 5m",
    )
    how.add_argument("--end", action="store_true", help="let the exporter read the driver again at once")
    parser.add_argument(
        "--run-dir",
        dest="run_directory",
        type=named,
        default=usual.run,
        metavar="DIR",
        help=f"the exporter's; default: {usual.run}",
    )
    parser.add_argument(
        "--path.procfs", dest="procfs", type=directory, default=usual.procfs, metavar="DIR", help="default: /proc"
    )
    parser.set_defaults(run=run)


def run(given: argparse.Namespace) -> Exit:
    # Imported only now: `llmhost` as a whole must start quickly.
    from llmhost.assemble.exporter import boot_id  # noqa: PLC0415
    from llmhost.cli.output import write_out  # noqa: PLC0415
    from llmhost.state import driver_pause as driver_release  # noqa: PLC0415
    from llmhost.state.directory import StoreError  # noqa: PLC0415

    paths = Paths(procfs=given.procfs, run=given.run_directory)
    try:
        if given.end:
            there_was = driver_release.withdraw(paths.run)
            write_out("the driver may be read again\n" if there_was else "no release is in force\n")
            return Exit.GOOD
        until = driver_release.boottime() + given.seconds
        driver_release.ask(paths.run, boot_id=boot_id(paths), until_boottime_seconds=until)
    except StoreError as error:
        sys.stderr.write(f"llmhost: {error}\n")
        return Exit.CANNOT_TELL
    return _told(paths, until=time.strftime("%H:%M:%S", time.localtime(time.time() + given.seconds)))


def _told(paths: Paths, *, until: str) -> Exit:
    from llmhost.cli.output import write_out  # noqa: PLC0415 - see above
    from llmhost.views.driver_pause import release_text  # noqa: PLC0415

    found = _settled(paths)
    if found is None:
        sys.stderr.write(f"llmhost: {paths.procfs} does not tell who has the driver open\n")
        return Exit.CANNOT_TELL
    write_out(release_text(found, until=until))
    if any(user.nvml_child for user in found.users):
        return Exit.FINDINGS
    if found.hidden:
        sys.stderr.write(f"llmhost: {paths.procfs} hides other users' processes: an exporter may be among them\n")
        return Exit.CANNOT_TELL
    return Exit.GOOD


def _settled(paths: Paths) -> "DriverUsers | None":
    """Wait for llmhost's children to go; give what is there then. None where nobody can tell."""
    began = time.monotonic()
    while True:
        left = began + _PATIENCE_SECONDS - time.monotonic()
        found = _looked(paths, max(1.0, left))
        if found is None or left <= 0:
            return found
        noticed = time.monotonic() - began >= _NOTICED_SECONDS or not any(user.command for user in found.users)
        if noticed and not any(user.nvml_child for user in found.users):
            return found
        time.sleep(_STEP_SECONDS)


def _looked(paths: Paths, seconds: float) -> "DriverUsers | None":
    """Look from a thread: a command line cannot be read while its process hangs in certain calls of the driver."""
    from llmhost.assemble.exporter import driver_users  # noqa: PLC0415 - see above

    found: list[DriverUsers] = []

    def look() -> None:
        try:
            found.append(driver_users(paths))
        except OSError:
            return

    thread = threading.Thread(target=look, daemon=True)
    thread.start()
    thread.join(seconds)
    return found[0] if found else None


def _time(text: str) -> float:
    from llmhost.config.quantities import QuantityError, parse_time  # noqa: PLC0415 - see above
    from llmhost.state.driver_pause import MOST_SECONDS  # noqa: PLC0415

    try:
        seconds = parse_time(text)
    except QuantityError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
    if not 1 <= seconds <= MOST_SECONDS:
        raise argparse.ArgumentTypeError("from 1s to 1h")
    return seconds
