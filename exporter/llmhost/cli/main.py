"""`llmhost`: the way in, also of `python -m llmhost`."""

import os
import signal
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    if arguments[:1] == ["guard"]:
        code = _guard(arguments)
        # Python's own end takes 0.3 s. A signal that comes then, or systemd's time-out, would change how this ends.
        os._exit(code)
    from llmhost.cli.command import run

    return run(arguments, ())


def _guard(arguments: list[str]) -> int:
    """Run the guard. Where llmhost is half replaced, the start goes on: its absence must keep no service down."""
    given = dict(os.environ)
    try:
        from llmhost.guard.first_moment import begin  # before the imports of all else, which take time

        begin()
        from llmhost.guard.environment import take_environment  # before all else is imported, or started

        environment = take_environment()
        from llmhost.cli.command import run

        return run(arguments, environment)
    except Exception as error:  # noqa: BLE001 - parts of two versions do not fit together in many ways
        command = arguments[arguments.index("--") + 1 :] if "--" in arguments else []
        options = arguments[: len(arguments) - len(command)]
        refuses = "--on-fault=refuse" in options or "--on-fault refuse" in " ".join(options)
        then = "is refused, as --on-fault=refuse says" if refuses else "goes on, whatever is on the GPUs"
        reason = f"{type(error).__name__}: {error}"
        priority = "<4>" if "JOURNAL_STREAM" in os.environ else ""
        sys.stderr.write(
            f"{priority}llmhost is half installed, or half replaced ({reason}): the start {then}. Install it anew\n"
        )
        return 4 if refuses else _go_on(command, given)


def _go_on(command: list[str], environment: dict[str, str]) -> int:
    """Become the command, where there is one: without it nothing starts."""
    if command:
        for number in (signal.SIGPIPE, signal.SIGXFSZ):
            signal.signal(number, signal.SIG_DFL)  # Python ignores them, and what is executed would inherit that
        try:
            os.execvpe(command[0], command, environment)  # noqa: S606 - what it was asked to run, and no shell
        except OSError as error:
            sys.stderr.write(f"llmhost: {command[0]} cannot be run: {error.strerror}\n")
            return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
