"""The engines' servers that a command line starts, found behind wrappers, shells and containers. Pure.

A shell or wrapper that waits for an engine is not an engine's process, so `engines.classify` does not come here; a
service that starts one is an engine's service, so discovery does. Only programs known to run their arguments are seen
through, each by its own syntax: `less vllm.log`, `journalctl -u vllm` and `grep vllm serve` are no engines. Where a
part is not known (model/command/words), so is what it could hold.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from posixpath import basename

from llmhost.model.command.containers import CLIENTS, image_engine, parse_container
from llmhost.model.command.environment import Environment
from llmhost.model.command.shell import ShellCommand, shell_commands
from llmhost.model.command.words import SOME, is_known
from llmhost.model.command.wrappers import environment_by, run_by, split_options, unwrapped
from llmhost.model.engines import own_command

_DEPTH = 8  # wrappers in wrappers; no honest command line has more
_MOST_WORDS = 512  # that are searched; any user can write a command line, and must not hold us up
_MOST_COMMANDS = 64  # of a piece of shell code
_SHELLS = frozenset({"sh", "bash", "dash", "ash", "zsh", "ksh"})
_SHELL_OPTIONS = frozenset({"-o", "-O", "--rcfile", "--init-file"})


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerCommand:
    """A program that a command line starts. `argv` is its own; of an image with an engine, the image and what follows.

    `background`: what follows it on the command line runs beside it.
    """

    engine: str  # "" for a program that is no known engine
    argv: tuple[str, ...]
    environment: Environment
    gpus: tuple[str, ...] | None = None  # of the container that it is in, by names; None: it is in none
    background: bool = False
    branch: bool = False  # it may run or not


def is_engine_command(argv: Sequence[str]) -> str:
    """Name the engine that this command line will run, "" when it will run none that we know."""
    return engine_command(argv)[0]


def engine_command(argv: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Find the first engine and its own argv."""
    servers = server_commands([argv], Environment())
    return (servers[0].engine, servers[0].argv) if servers else ("", ())


def server_commands(commands: Sequence[Sequence[str]], environment: Environment) -> tuple[ServerCommand, ...]:
    """Find the servers that run at the same time, once these commands run one after the other.

    Where one of several commands is the server, and which is not known, so are its arguments.
    """
    together: list[ServerCommand] = []
    one_of: list[ServerCommand] = []
    for found in programs(commands, environment):
        if not found.engine:
            continue
        if found.background:
            together.append(found)
            continue
        one_of.append(replace(found, branch=False))
        if not found.branch:
            break  # what follows runs after it
    if len(set(map(_identity, one_of))) > 1:
        first = one_of[0]
        one_of = [_doubted(first, "one of several commands")]
    return (*together, *one_of[:1])


def programs(commands: Sequence[Sequence[str]], environment: Environment) -> list[ServerCommand]:
    """Find all programs that these commands start, in their order."""
    found: list[ServerCommand] = []
    for argv in commands:
        words = tuple(argv[:_MOST_WORDS])
        found += _read(words if len(argv) <= _MOST_WORDS else (*words, SOME), _Place(environment=environment))
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class _Place:
    """The surroundings of a command line: environment, container, shell."""

    environment: Environment
    gpus: tuple[str, ...] | None = None
    background: bool = False
    branch: bool = False
    depth: int = _DEPTH
    in_runner: bool = False


def _read(argv: tuple[str, ...], place: _Place) -> list[ServerCommand]:
    if not argv or not place.depth:
        return []
    own = own_command(argv)
    if own is not None:
        if argv[0] == SOME:  # such as `env NAME=value`
            place = replace(place, environment=place.environment.opened("a command that is not known"))
        return [_program(own[0], argv, place)]
    program, arguments = basename(argv[0]), argv[1:]
    inner = replace(place, depth=place.depth - 1)
    if program in _SHELLS:
        return _of_shell(arguments, inner)
    wrapped = unwrapped(program, arguments, place.environment)
    if wrapped is not None:
        inner = replace(inner, environment=wrapped.environment)
        if wrapped.code is not None:
            return _of_code(wrapped.code, (), inner)
        return _read(wrapped.argv, inner) if wrapped.surely else _anywhere(program, wrapped.argv, inner)
    container = parse_container(arguments, place.environment) if program in CLIENTS else None
    if container is not None:
        inner = replace(
            inner,
            environment=container.environment,
            gpus=container.gpus,
            background=place.background or container.detached,
        )
        found = _read(container.argv, inner) if container.argv else []
        if container.engine and not any(each.engine for each in found):
            return [_program(container.engine, (container.image, *container.argv), inner)]
        return found
    given = run_by(program, arguments)
    if given is not None and not place.in_runner:  # a runner in a runner would be looked for N² times
        found = _anywhere(program, given, inner)
        if found:  # the guard is looked for as well (derive/command)
            return [_program("", argv, place), *found] if program == "llmhost" else found
    return [_program("", argv, place)]


def _program(engine: str, argv: tuple[str, ...], place: _Place) -> ServerCommand:
    return ServerCommand(
        engine=engine,
        argv=argv,
        environment=place.environment,
        gpus=place.gpus,
        background=place.background,
        branch=place.branch,
    )


def _of_shell(arguments: tuple[str, ...], place: _Place) -> list[ServerCommand]:
    """Read `sh -c CODE`, or a script: a wrapper that is itself called `vllm` counts."""
    options = split_options([_dashed(word) for word in arguments], _SHELL_OPTIONS)
    rest = arguments[len(arguments) - len(options.rest) :]
    names = {name for name, _ in options.given}
    if {"-l", "--login", "-i"} & names or not options.surely:
        place = replace(place, environment=place.environment.opened("the profile of a login shell"))
    elif place.environment.get("BASH_ENV"):
        place = replace(place, environment=place.environment.opened("BASH_ENV"))
    if "-c" not in names:
        return _read(rest, place)
    return _of_code(rest[0], rest[1:], place) if rest else []


def _dashed(word: str) -> str:
    return f"-{word[1:]}" if word.startswith("+") else word


def _of_code(code: str, arguments: tuple[str, ...], place: _Place) -> list[ServerCommand]:
    if not is_known(code):
        place = replace(place, environment=place.environment.opened("shell code"))
    found: list[ServerCommand] = []
    for command in shell_commands(code, place.environment, arguments)[:_MOST_COMMANDS]:
        inner = replace(
            place,
            environment=command.environment,
            background=place.background or command.background,
            branch=place.branch or command.branch,
        )
        servers = _read(command.words, inner)
        found += [_doubted(server, "a loop") for server in servers] if _may_be_several(command) else servers
    return found


def _may_be_several(command: ShellCommand) -> bool:
    return command.repeats and command.background


def _anywhere(program: str, arguments: tuple[str, ...], place: _Place) -> list[ServerCommand]:
    """Find the command at whichever argument it begins, as the options before it are not all known."""
    in_runner = replace(place, in_runner=True)
    for index, argument in enumerate(arguments):
        engine = image_engine(argument)
        if not engine and not any(server.engine for server in _read(arguments[index:], in_runner)):
            continue
        environment = environment_by(program, arguments[:index], place.environment)
        found = _read(arguments[index + bool(engine) :], replace(in_runner, environment=environment))
        if engine and not any(server.engine for server in found):
            return [_program(engine, arguments[index:], replace(place, environment=environment))]
        return found
    return []


def _doubted(server: ServerCommand, why: str) -> ServerCommand:
    return replace(server, argv=(*server.argv, SOME), environment=server.environment.opened(why))


def _identity(server: ServerCommand) -> tuple[object, ...]:
    environment = server.environment
    return (
        server.engine,
        server.argv,
        tuple(sorted(environment.values.items(), key=str)),
        environment.unread,
        server.gpus,
    )
