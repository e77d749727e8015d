"""A parser of options that answers a slip in two lines: the usage, and the mistake with what was meant."""

from __future__ import annotations

import argparse
import sys
from contextlib import suppress
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

_WRONG_USE = 2  # as argparse has it
# Options that people know from other programs, of which no part is in the name of ours.
_KNOWN_ELSEWHERE = {"port": "web.listen-address", "verbose": "log.level", "debug": "log.level"}


class OptionParser(argparse.ArgumentParser):
    """Keeps its exit code where stderr cannot be written: argparse of Python 3.11.2 raises there."""

    def require_known(self, arguments: Sequence[str], commands: Mapping[str, OptionParser]) -> None:
        """Show the help where nothing is asked for; ask what was meant where a command or an option is not known.

        Options come first: argparse would take the value of an unknown one for a positional argument.
        """
        if not arguments:
            with suppress(OSError):
                self.print_help(sys.stderr)
            self.exit(_WRONG_USE, f"{self.prog}: error: a COMMAND is required\n")
        if early := self.unknown_options(arguments[:1]):
            command = next((argument for argument in arguments if argument in commands), "")
            commands.get(command, self).error_of_unknown(early)
        given = next((argument for argument in arguments if not argument.startswith("-")), None)
        if given is None:
            parser, options = self, arguments
        elif given in commands:
            parser, options = commands[given], arguments[arguments.index(given) + 1 :]
        else:
            meant = _did_you_mean(given, commands) or f" (choose from {', '.join(commands)})"
            self.error(f"invalid choice: {given!r}{meant}")
        if unknown := parser.unknown_options(options):
            parser.error_of_unknown(unknown)

    def error_of_unknown(self, unknown: Sequence[str]) -> NoReturn:
        name = unknown[0].partition("=")[0]
        is_there = name in self._option_string_actions
        meant = (
            " before the command: options go behind it"
            if is_there
            else _did_you_mean(name, self._option_string_actions)
        )
        self.error(f"unrecognized arguments: {' '.join(unknown)}{meant}")

    def error(self, message: str) -> NoReturn:
        with suppress(OSError):
            self.print_usage(sys.stderr)
        self.exit(_WRONG_USE, f"{self.prog}: error: {message}\n")

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        with suppress(OSError, AttributeError):  # it is closed, or there is none
            sys.stderr.write(message or "")
        raise SystemExit(int(status))

    def unknown_options(self, arguments: Sequence[str]) -> list[str]:
        """Find the options that there are not, each with what may be its value."""
        found: list[str] = []
        takes_value = is_unknown = False  # the option before
        for argument in arguments:
            if argument == "--":
                break
            if not argument.startswith("-") or argument == "-" or takes_value:
                found += [argument] if is_unknown else []
                takes_value = is_unknown = False
                continue
            name, _, value = argument.partition("=")
            action = self._option_string_actions.get(name)
            is_unknown = action is None and not value
            takes_value = action is not None and action.nargs != 0 and not value
            found += [argument] if action is None else []
        return found


def _did_you_mean(given: str, choices: Collection[str]) -> str:
    import difflib  # noqa: PLC0415 - not for the guard's start

    names = {choice.lstrip("-"): choice for choice in choices}
    name = _KNOWN_ELSEWHERE.get(given.lstrip("-"), given.lstrip("-"))
    close = difflib.get_close_matches(name, names, n=1, cutoff=0.6)
    close += [choice for choice in names if len(name) > 1 and name in choice]  # --listen
    return f"; did you mean {names[close[0]]}?" if close else ""
