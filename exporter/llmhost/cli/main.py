"""`llmhost`: argument parsing, logging, and our own faults.

What a command needs is imported when it runs: `guard` must be up at once, whatever the others take, and also where a
fault in one of them would keep every other from starting.
"""

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path

from llmhost import __version__
from llmhost.cli import guard
from llmhost.cli.exits import Exit
from llmhost.cli.options import add_host_options, paths_of
from llmhost.cli.output import UnwritableError, complain, let_go_of_output, write_out

log = logging.getLogger(__name__)

_LEVELS = ("debug", "info", "warning", "error")
# sd-daemon(3): journald takes a line's priority from its beginning.
_JOURNAL_PRIORITY = {logging.DEBUG: 7, logging.INFO: 6, logging.WARNING: 4, logging.ERROR: 3, logging.CRITICAL: 2}


def main(argv: Sequence[str] | None = None) -> int:
    _occupy_streams()
    code = _run(sys.argv[1:] if argv is None else list(argv))
    let_go_of_output()
    return code


def _run(given: Sequence[str]) -> int:
    try:
        arguments = _parsed(given)
        if isinstance(arguments, int):
            return arguments
        _set_up_logging(getattr(arguments, "log_level", "info"))
        return int(arguments.run(arguments))
    except KeyboardInterrupt:
        return 130  # as a shell has it for SIGINT
    except BrokenPipeError:  # whoever read our output has gone
        return Exit.GOOD
    except UnwritableError as error:
        complain(str(error))
        return Exit.CANNOT_TELL
    except Exception:
        log.exception("this is a bug in llmhost")
        return Exit.OWN_FAULT


def _parsed(given: Sequence[str]) -> argparse.Namespace | int:
    """Parse; or give the exit code, after --help, --version and wrong use."""
    try:
        found, unknown = _parser(guard_alone=given[:1] == ["guard"]).parse_known_args(given)
        if unknown:
            found.wrong_use(f"unrecognized arguments: {' '.join(unknown)}")
    except SystemExit as ended:
        if not ended.code:
            write_out("")  # what argparse has written is still in a buffer
        return ended.code if isinstance(ended.code, int) else Exit.GOOD
    return found


def _parser(*, guard_alone: bool) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="llmhost",
        description="Which systemd unit holds which GPU memory, and is it safe to start.",
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"llmhost {__version__}")
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    if not guard_alone:
        _add_others(commands)
    guard.add_parser(commands)
    for command in commands.choices.values():
        command.set_defaults(wrong_use=command.error)  # with the usage of that command; parse_args shows only ours
    return parser


def _add_others(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    from llmhost.cli import clean, doctor, release, status  # noqa: PLC0415 - see above

    _add_serve(commands)
    check = commands.add_parser(
        "check-config",
        help="check a config file and print what it comes to",
        description="Check a config file and print what it comes to.",
        allow_abbrev=False,
    )
    check.add_argument("file", nargs="?", type=Path, metavar="FILE", help="default: /etc/llmhost/llmhost.yml")
    check.set_defaults(run=_check_config)
    status.add_parser(commands)
    doctor.add_parser(commands)
    clean.add_parser(commands)
    release.add_parser(commands)


def _add_serve(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    parser = commands.add_parser(
        "serve",
        help="serve /metrics (with --once: print one page)",
        description="Serve /metrics for Prometheus, or print one page.",
        allow_abbrev=False,
    )
    add_host_options(parser, state_directory_help="where history is kept")
    parser.add_argument(
        "--web.listen-address", dest="listen", type=_listen_address, metavar="[HOST]:PORT", help="default: :10061"
    )
    parser.add_argument("--once", action="store_true", help="print one page and exit")
    parser.add_argument("--log.level", dest="log_level", choices=_LEVELS, default="info", help="default: info")
    parser.set_defaults(run=_serve)


def _serve(given: argparse.Namespace) -> Exit:
    from llmhost.cli import serve  # noqa: PLC0415 - see above

    return serve.run(
        serve.Arguments(
            config=given.config,
            listen=given.listen,
            state_directory=given.state_directory,
            once=given.once,
            paths=paths_of(given),
        )
    )


def _check_config(given: argparse.Namespace) -> Exit:
    from llmhost.cli import check_config  # noqa: PLC0415 - see above

    return check_config.run(given.file, sys.stderr)


def _listen_address(text: str) -> str:
    from llmhost.model.listen import parse_listen  # noqa: PLC0415 - see above

    try:
        return str(parse_listen(text))
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _occupy_streams() -> None:
    """Open what of 0, 1 and 2 we were started without: what is opened next would become a child's stream by mistake."""
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
    """Whether stderr is connected to the journal: systemd.exec(5), $JOURNAL_STREAM is its device and inode."""
    if sys.stderr is None:  # we were started with it closed
        return False
    try:
        found = os.fstat(sys.stderr.fileno())
    except (OSError, ValueError):
        return False
    return os.environ.get("JOURNAL_STREAM") == f"{found.st_dev}:{found.st_ino}"


if __name__ == "__main__":
    sys.exit(main())
