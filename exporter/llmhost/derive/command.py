"""A unit's command as systemd will run it: its environment, and the servers that it starts."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from posixpath import basename

from llmhost.model.command.environment import Environment, expanded
from llmhost.model.command.words import UNKNOWN, is_known
from llmhost.model.engine_command import ServerCommand, programs, server_commands
from llmhost.model.unit import Unit, UnitSettings

_TALKERS = frozenset({"echo", "logger", "printf"})  # whose words are no command


def environment_of(settings: UnitSettings) -> Environment:
    """Find what systemd gives to the unit's programs (systemd.exec(5), "Environment variables in spawned processes").

    The later wins: the manager's own, PassEnvironment=, Environment=, EnvironmentFile=, PAM, UnsetEnvironment=.
    """
    values: dict[str, str | None] = dict(settings.manager_environment or ())
    values |= dict.fromkeys(settings.pass_environment, UNKNOWN)
    values |= dict(settings.environment)
    environment = Environment(values=values, complete=settings.manager_environment is not None)
    if settings.environment_files:
        environment = environment.opened("EnvironmentFile=")
    elif settings.pam_name:
        environment = environment.opened("PAMName=")
    unset = (entry for entry in settings.unset_environment if environment.get(entry.partition("=")[0]) is not None)
    for name, equals, value in (entry.partition("=") for entry in unset):
        if not equals or environment.get(name) == value:
            environment = environment.with_values({name: None})
    return environment


def with_whole_environment(settings: UnitSettings, environment: tuple[tuple[str, str], ...]) -> UnitSettings:
    """Give the settings of a program whose environment is known whole, wherever its variables come from."""
    return replace(
        settings,
        environment=environment,
        environment_files=(),
        pass_environment=(),
        unset_environment=(),
        pam_name="",
        manager_environment=(),
    )


def servers_of(settings: UnitSettings | None) -> tuple[ServerCommand, ...]:
    """Give the servers that ExecStart= runs at the same time."""
    if settings is None:
        return ()
    environment = environment_of(settings)
    return server_commands([expanded(argv, environment) for argv in settings.exec_start], environment)


def engine_of(unit: Unit) -> str:
    """Name the engine that ExecStart= runs, "" where it is not known."""
    return next((server.engine for server in servers_of(unit.settings)), "")


def starts_an_engine(argv: Sequence[str]) -> bool:
    """Tell by a command alone, where no variable is known."""
    nothing = Environment()
    return bool(server_commands([expanded(argv, nothing)], nothing))


def programs_of(settings: UnitSettings) -> list[ServerCommand]:
    """Give all programs that ExecStart= runs, in their order."""
    environment = environment_of(settings)
    return programs([expanded(argv, environment) for argv in settings.exec_start], environment)


def is_guard(command: Sequence[str]) -> bool:
    """Say whether a command runs `llmhost guard`, by whatever Python, shell or wrapper."""
    return bool(guard_in(command))


def guard_in(command: Sequence[str]) -> tuple[str, ...]:
    """Give the line of the guard that a command runs; () where it runs none."""
    found = [program.argv for program in programs([command], Environment()) if _names_guard(program.argv)]
    known = [argv for argv in found if is_known(argv[0])]
    whole = [tuple(command)] if _names_guard(command) else []
    return next(iter((*known, *whole, *found)), ())


def _names_guard(argv: Sequence[str]) -> bool:
    """Look for `llmhost guard`, which no option of llmhost can part."""
    talks = bool(argv) and basename(argv[0]) in _TALKERS
    return not talks and any(basename(word) == "llmhost" and after == "guard" for word, after in pairwise(argv))
