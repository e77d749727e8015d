"""`llmhost release`: the exporter keeps off the driver for a while, for a GPU reset, a MIG change or a new driver."""

import sys
import time

from llmhost.assemble.sources import Sources
from llmhost.cli.exits import Exit
from llmhost.cli.output import write_out
from llmhost.cli.requests import DriverPauseRequest
from llmhost.model.driver_user import DriverUsers
from llmhost.runtime.bounded_call import BoundedCall
from llmhost.state.directory import StoreError
from llmhost.state.driver_pause import ask, boottime, withdraw
from llmhost.views.driver_pause import release_text

_SETTLE_SECONDS = 5.0  # for the exporter to close the driver, and its child to end
_NOTICED_SECONDS = 1.5  # an exporter looks for a pause twice a second
_STEP_SECONDS = 0.1


def run(request: DriverPauseRequest) -> Exit:
    sources = Sources(paths=request.paths)
    try:
        if request.seconds is None:
            there_was = withdraw(request.paths.run)
            write_out("the driver may be read again\n" if there_was else "no release is in force\n")
            return Exit.GOOD
        until = boottime() + request.seconds
        ask(request.paths.run, boot_id=sources.boot_id, until_boottime_seconds=until)
    except StoreError as error:
        sys.stderr.write(f"llmhost: {error}\n")
        return Exit.CANNOT_TELL
    return _reported(sources, until=time.strftime("%H:%M:%S", time.localtime(time.time() + request.seconds)))


def _reported(sources: Sources, *, until: str) -> Exit:
    found = _settled(sources)
    procfs = sources.paths.procfs
    if found is None:
        sys.stderr.write(f"llmhost: {procfs} does not tell who has the driver open\n")
        return Exit.CANNOT_TELL
    write_out(release_text(found, until=until))
    if any(user.nvml_child for user in found.users):
        return Exit.FINDINGS
    if found.hidden:
        sys.stderr.write(f"llmhost: {procfs} hides other users' processes: an exporter may be among them\n")
        return Exit.CANNOT_TELL
    return Exit.GOOD


def _settled(sources: Sources) -> DriverUsers | None:
    """Wait for llmhost's children to end; return who has the driver open then, None where that cannot be read."""
    began = time.monotonic()
    while True:
        remaining = began + _SETTLE_SECONDS - time.monotonic()
        found = _users(sources, max(1.0, remaining))
        if found is None or remaining <= 0:
            return found
        noticed = time.monotonic() - began >= _NOTICED_SECONDS or not any(user.command for user in found.users)
        if noticed and not any(user.nvml_child for user in found.users):
            return found
        time.sleep(_STEP_SECONDS)


def _users(sources: Sources, seconds: float) -> DriverUsers | None:
    """Read with a limit: a command line cannot be read while its process hangs in certain calls of the driver."""
    try:
        return BoundedCall(sources.driver_users, name="llmhost-driver-users").result(time.monotonic() + seconds)
    except (OSError, TimeoutError):
        return None
