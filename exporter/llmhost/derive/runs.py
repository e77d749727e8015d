"""The run of a unit: its servers, each with its engine, arguments and the GPUs that its environment makes visible."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from llmhost.derive.command import programs_of, servers_of
from llmhost.derive.unit_membership import UnitMemberships
from llmhost.model.command.containers import is_for_cpus
from llmhost.model.command.environment import Environment
from llmhost.model.command.words import UNKNOWN, is_known
from llmhost.model.engine_arguments import EngineArguments, completed, parse_engine_arguments
from llmhost.model.engine_command import ServerCommand, is_engine_command
from llmhost.model.history.history import LastServer
from llmhost.model.host import Host
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import Cause, Failed, Ok, Reading, both
from llmhost.model.unit import Unit, UnitSettings

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_LONGEST_LIST = 4000  # of GPUs' names, that is remembered; 64 UUIDs come to 2600
_FOR_CPUS = "VLLM_CPU_"  # vllm/envs.py: variables that a build for CPUs alone reads


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One server of a unit."""

    engine: str  # "" where no engine is known to run
    arguments: EngineArguments | None
    visible: Reading[str | None]  # CUDA_VISIBLE_DEVICES; None where it is not set
    container_gpus: tuple[str, ...] | None = None  # by the names that its container was given; None: it is in none
    in_pci_order: bool = False  # CUDA counts as the driver does


def run_of(unit: Unit, members: tuple[Process, ...], processes: Reading[ProcessTable], host: Reading[Host]) -> Run:
    """Find the first server of the unit."""
    return runs_of(unit, members, processes, host)[0]


def runs_of(
    unit: Unit,
    members: tuple[Process, ...],
    processes: Reading[ProcessTable],
    host: Reading[Host],
    last: Sequence[LastServer] = (),
) -> tuple[Run, ...]:
    """Find the servers that the unit runs, or will run: one at least, which may be of no known engine.

    Their arguments are those of the present activation's API servers, else those of ExecStart=, which the next start
    will use, else those that they were started with last, else those of an API server that is left over. What is not
    known of ExecStart= is as it was `last`. A title such as VLLM::APIServer_0 replaces the arguments; its launcher
    still has them.
    """
    servers, present = _fronts(members), present_servers(unit, members, processes, host)
    settings = unit.settings if unit.settings is not None else UnitSettings()
    written = servers_of(settings)
    if present or written:
        return _paired(present, written, settings, last)
    if last:
        return tuple(_as_last(server, settings) for server in last)
    if servers:
        return (_of_process(servers[0], None, settings),)
    engine = next((process.engine for process in members if process.engine), "")
    return (_run(engine, None, None, settings),)


def present_servers(
    unit: Unit, members: tuple[Process, ...], processes: Reading[ProcessTable], host: Reading[Host]
) -> list[Process]:
    """Give the API servers of the unit's present activation, or their launchers."""
    known = both(processes, host)
    if not isinstance(known, Ok):
        return []
    memberships = UnitMemberships(units={unit.id: unit}, processes=known.value[0], host=known.value[1], process_runs={})
    return [server for server in _fronts(members) if (of := memberships.of(server)) is not None and of.present]


def last_server(run: Run) -> LastServer:
    """Give what is to be remembered of a server. Users choose its arguments: of what is out of all bounds, nothing."""
    visible = run.visible.value if isinstance(run.visible, Ok) else None
    unknown = run.visible.detail if isinstance(run.visible, Failed) else ""
    if visible is not None and len(visible) > _LONGEST_LIST:
        visible, unknown = None, f"{_VARIABLE} is too long"
    named = run.container_gpus
    return LastServer(
        engine=run.engine,
        arguments=None if run.arguments is None else run.arguments.within_bounds(),
        visible_gpus=visible,
        visible_unknown=unknown,
        container_gpus=(UNKNOWN,) if named is not None and sum(map(len, named)) > _LONGEST_LIST else named,
        in_pci_order=run.in_pci_order,
    )


def _fronts(members: tuple[Process, ...]) -> list[Process]:
    """Give the processes whose arguments are a server's, without those that such a one started; the first first."""
    fronts = [
        process
        for process in members
        if process.role in {Role.API_SERVER, Role.LAUNCHER} and is_engine_command(process.argv)
    ]
    pids = {front.id.pid for front in fronts}
    tops = [front for front in fronts if front.ppid not in pids] or fronts
    return sorted(tops, key=lambda process: (process.id.start_ticks, process.id.pid))


def _paired(
    present: list[Process], written: tuple[ServerCommand, ...], settings: UnitSettings, last: Sequence[LastServer]
) -> tuple[Run, ...]:
    """Join each process with the command that started it. Of several commands some may not have started yet."""
    before = last if len(last) == len(written) else (None,) * len(written)
    if len(written) <= 1:
        command = written[0] if written else None
        runs = [_of_process(process, command, settings) for process in present]
        return tuple(runs) or (_of_command(written[0], settings, before[0]),)
    left = list(present)
    by_command: dict[int, Process] = {}
    for exact in (True, False):
        for index, command in enumerate(written):
            process = next((each for each in left if _fits(each, command, exact=exact)), None)
            if index not in by_command and process is not None:
                by_command[index] = process
                left.remove(process)
    return (
        *(
            _of_process(by_command[index], command, settings)
            if index in by_command
            else _of_command(command, settings, before[index])
            for index, command in enumerate(written)
        ),
        *(_of_process(process, None, settings) for process in left),
    )


def _fits(process: Process, command: ServerCommand, *, exact: bool) -> bool:
    own = command.argv[1:]
    if not exact:
        return process.engine == command.engine and not all(map(is_known, own))
    return process.engine == command.engine and process.argv[len(process.argv) - len(own) :] == own


def _of_process(process: Process, command: ServerCommand | None, settings: UnitSettings) -> Run:
    return _run(process.engine, parse_engine_arguments(process.engine, process.argv), command, settings)


def _of_command(command: ServerCommand, settings: UnitSettings, last: LastServer | None) -> Run:
    arguments = parse_engine_arguments(command.engine, command.argv)
    before = last.arguments if last is not None and last.engine == command.engine else None
    if before is not None and not all(map(is_known, command.argv)):
        arguments = completed(arguments, before, command.argv)
    return _run(command.engine, arguments, command, settings)


def _as_last(server: LastServer, settings: UnitSettings) -> Run:
    """Take a server to be started again as it was last; systemd's settings, where it has loaded the unit, are newer."""
    if settings.exec_start:
        return _run(server.engine, server.arguments, None, settings)
    unknown = server.visible_unknown
    return Run(
        engine=server.engine,
        arguments=server.arguments,
        visible=Failed(Cause.UNKNOWN, unknown) if unknown else Ok(server.visible_gpus),
        container_gpus=server.container_gpus,
        in_pci_order=server.in_pci_order,
    )


def _run(engine: str, arguments: EngineArguments | None, command: ServerCommand | None, settings: UnitSettings) -> Run:
    known = command is not None or not engine
    last = command or next(reversed(programs_of(settings)), None)
    environment = last.environment if last is not None else Environment(values=dict(settings.environment))
    if arguments is not None and last is not None and _is_for_cpus(engine, last):
        arguments = replace(arguments, without_gpu=True)
    return Run(
        engine=engine,
        arguments=arguments,
        visible=_visible(environment, known=known),
        container_gpus=last.gpus if last is not None else None,
        in_pci_order=environment.get("CUDA_DEVICE_ORDER") == "PCI_BUS_ID",
    )


def _is_for_cpus(engine: str, command: ServerCommand) -> bool:
    if command.gpus is not None and is_for_cpus(command.argv[0]):
        return True
    return engine == "vllm" and any(
        name.startswith(_FOR_CPUS) and value is not None for name, value in command.environment.values.items()
    )


def _visible(environment: Environment, *, known: bool) -> Reading[str | None]:
    """Give the engine's CUDA_VISIBLE_DEVICES; a program of the user's own in front of it (not `known`) may choose."""
    value = environment.get(_VARIABLE)
    if value is not None and not is_known(value):
        if _VARIABLE in environment.values:
            return Failed(Cause.UNKNOWN, f"the unit's command sets {_VARIABLE} to what is not known")
        return Failed(Cause.UNKNOWN, f"{environment.unread} may say which GPUs the unit uses")
    if value is None and not known:
        return Failed(Cause.UNKNOWN, "the engine is started by a program that may choose its GPUs")
    return Ok(value)
