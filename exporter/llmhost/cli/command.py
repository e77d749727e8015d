"""The one command that was asked for: its logging, and our own faults."""

import logging
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from llmhost.cli.exits import Exit
from llmhost.cli.output import UnwritableError, complain, let_go_of_output, write_out
from llmhost.cli.parser import parse
from llmhost.guard.ending_signals import ENDING_SIGNALS
from llmhost.guard.environment import Environment
from llmhost.guard.request import GuardRequest

if TYPE_CHECKING:
    from llmhost.cli.parser import CommandRequest

log = logging.getLogger(__name__)

# sd-daemon(3): journald takes a line's priority from its beginning.
_JOURNAL_PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def run(arguments: Sequence[str], environment: Environment) -> int:
    """Give the exit code. Raises what nobody expected of a guard's wait: cli/main.py says what becomes of it."""
    _occupy_streams()
    code = _run(arguments, environment)
    let_go_of_output()
    return code


def _run(arguments: Sequence[str], environment: Environment) -> int:
    request: CommandRequest | None = None
    try:
        try:
            request = parse(arguments)
        except SystemExit as ended:
            if not ended.code:
                write_out("")  # what argparse has written is still in a buffer
            code = ended.code if isinstance(ended.code, int) else Exit.GOOD
            if code and list(arguments[:1]) == ["guard"]:
                from llmhost.cli import guard

                return guard.refused(code)
            return code
        if isinstance(request, GuardRequest):
            request = replace(request, environment=environment)
        else:
            os.environ.update(environment)  # --install is an administrator's command, as all others are
        return int(_command(request))
    except KeyboardInterrupt:
        return 130  # as a shell has it for SIGINT
    except BrokenPipeError:  # whoever read our output has gone
        return Exit.GOOD
    except UnwritableError as error:
        complain(str(error))
        return Exit.CANNOT_TELL
    except Exception:
        if arguments[:1] == ["guard"] and (request is None or isinstance(request, GuardRequest)):
            raise
        log.exception("this is a bug in llmhost")
        return Exit.OWN_FAULT


def _command(request: "CommandRequest") -> int:
    """Run the one command, whose module alone is imported: the guard must start at once, whatever others need."""
    if isinstance(request, GuardRequest):
        from llmhost.cli import guard

        _set_up_logging("info")
        return guard.run(request)

    from llmhost.cli import requests

    match request:
        case requests.ServeRequest():
            from llmhost.cli import serve

            _set_up_logging(request.log_level)
            return serve.run(request)
        case requests.StatusRequest():
            from llmhost.cli import status

            _set_up_logging("error")  # what fails is part of the answer
            return status.run(request)
        case requests.DoctorRequest():
            from llmhost.cli import doctor

            _set_up_logging("error")
            return doctor.run(request)
        case requests.CleanRequest():
            from llmhost.cli import clean

            _set_up_logging("error")
            return clean.run(request)
        case requests.DriverPauseRequest():
            from llmhost.cli import driver_pause

            _set_up_logging("info")
            return driver_pause.run(request)
        case requests.CheckConfigRequest():
            from llmhost.cli import check_config

            _set_up_logging("info")
            return check_config.run(request.file, sys.stderr)
        case requests.InstallRequest():
            from llmhost.cli import guard_install

            ENDING_SIGNALS.release()  # it does not wait
            _set_up_logging("info")
            return guard_install.run(request)


def _occupy_streams() -> None:
    """Open those of 0, 1 and 2 that we were started without: the next file opened would become a child's stream."""
    for stream in (0, 1, 2):
        try:
            os.fstat(stream)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # the lowest that is free


def _set_up_logging(level: str) -> None:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_JournalFormatter() if _is_journal() else logging.Formatter(_FORMAT))
    logging.basicConfig(level=level.upper(), handlers=[handler], force=True)


_FORMAT = "%(asctime)s %(levelname)s %(message)s"


class _JournalFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        priority = f"<{_JOURNAL_PRIORITY.get(record.levelno, 6)}>"
        return "\n".join(priority + line for line in super().format(record).splitlines())


def _is_journal() -> bool:
    """Tell if stderr goes to the journal: $JOURNAL_STREAM has its device and inode (systemd.exec(5))."""
    if sys.stderr is None:  # we were started with it closed
        return False
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"
