"""The run of a unit: its engine, the engine's arguments, and the GPUs that its environment makes visible."""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.derive.command import expand_variables
from llmhost.derive.unit_membership import UnitMemberships
from llmhost.model.engine_arguments import EngineArguments, parse_engine_arguments
from llmhost.model.engine_command import is_engine_command
from llmhost.model.host import Host
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.reading import Cause, Failed, Ok, Reading, both
from llmhost.model.unit import Unit, UnitSettings

_VARIABLE = "CUDA_VISIBLE_DEVICES"
_ASSIGNED = re.compile(rf"(?:^|[\s;&|('\"]){_VARIABLE}=['\"]?([^\s;&|'\")]*)")
_CONTAINERS = frozenset({"docker", "podman", "nerdctl", "apptainer", "singularity"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    engine: str  # "" where no engine is known to run
    arguments: EngineArguments | None
    visible: Reading[str | None]  # CUDA_VISIBLE_DEVICES; None where it is not set


def run_of(unit: Unit, members: tuple[Process, ...], processes: Reading[ProcessTable], host: Reading[Host]) -> Run:
    """Find the engine that the unit runs, or will run.

    Its arguments are those of the present activation's API server, else those of ExecStart=, which the next start will
    use, else those of an API server that is left over. A title such as VLLM::APIServer_0 replaces the arguments; its
    launcher still has them.
    """
    servers = [
        process
        for process in members
        if process.role in {Role.API_SERVER, Role.LAUNCHER} and is_engine_command(process.argv)
    ]
    known = both(processes, host)
    present: list[Process] = []
    if isinstance(known, Ok):
        memberships = UnitMemberships(
            units={unit.id: unit}, processes=known.value[0], host=known.value[1], process_runs={}
        )
        present = [server for server in servers if (of := memberships.of(server)) is not None and of.present]
    settings = unit.settings if unit.settings is not None else UnitSettings()
    commands = [expand_variables(command, dict(settings.environment)) for command in settings.exec_start]
    written = [(engine, argv) for argv in commands if (engine := is_engine_command(argv))]
    found = [(server.engine, server.argv) for server in present] + written
    found += [(server.engine, server.argv) for server in servers]
    if not found:
        engine = next((process.engine for process in members if process.engine), "")
        return Run(engine=engine, arguments=None, visible=_visible(settings, commands, known=not engine))
    engine, argv = found[0]
    return Run(
        engine=engine,
        arguments=parse_engine_arguments(engine, argv),
        visible=_visible(settings, commands, known=bool(written)),
    )


def _visible(settings: UnitSettings, commands: list[tuple[str, ...]], *, known: bool) -> Reading[str | None]:
    """Find the engine's CUDA_VISIBLE_DEVICES, as far as the unit's settings have it.

    EnvironmentFile= overrides Environment= (systemd.exec(5)); `env`, a shell's assignment or a container's options
    stand in ExecStart=; a program of the user's own in front of the engine (not `known`) may choose the GPUs.
    """
    if settings.environment_files or _VARIABLE in settings.pass_environment:
        return Failed(Cause.UNKNOWN, "EnvironmentFile= or PassEnvironment= may say which GPUs the unit uses")
    words = [word for command in commands for word in command]
    assigned = {value for word in words for value in _ASSIGNED.findall(word)}
    if len(assigned) > 1 or any("$" in value for value in assigned):
        return Failed(Cause.UNKNOWN, f"the unit's command sets {_VARIABLE} in more than one way, or by a variable")
    if assigned:
        return Ok(assigned.pop())
    if any(word.rpartition("/")[2] in _CONTAINERS for word in words):
        return Failed(Cause.UNKNOWN, "the options of a container say which GPUs the unit uses")
    environment: Mapping[str, str] = dict(settings.environment)
    if _VARIABLE in environment:
        return Ok(environment[_VARIABLE])
    if not known:
        return Failed(Cause.UNKNOWN, "the engine is started by a program that may choose its GPUs")
    return Ok(None)
