"""The engine servers of each unit, whose metrics are read."""

from collections.abc import Iterable, Mapping, Sequence

from llmhost.config.schema import EngineConfig
from llmhost.derive.activation import is_up
from llmhost.derive.command import engine_of
from llmhost.model.engine import EngineServer
from llmhost.model.engine_listen import parse_listen_arguments
from llmhost.model.ids import SYSTEM_MANAGER, UnitId
from llmhost.model.process import Process, ProcessTable, Role
from llmhost.model.unit import Unit, UnitsReport

SCRAPED_ENGINES = frozenset({"vllm", "sglang", "llamacpp"})  # their metrics we can read
_FRONTS = frozenset({Role.API_SERVER, Role.LAUNCHER})
_BEFORE_MAIN = frozenset({"condition", "start-pre"})  # sub-states before the activation has a main process


def engine_servers(
    processes: ProcessTable, units: UnitsReport, configured: Sequence[EngineConfig], *, young_from_ticks: float
) -> tuple[EngineServer, ...]:
    """Give the servers of watched units that are up, by unit.

    A configured unit has the configured servers, and no others. Else each API server of the present activation is one;
    API servers below one launcher, or below each other, share their sockets and are one together. A server that started
    at `young_from_ticks` or later, or whose unit is activating, may not listen yet.
    """
    urls: dict[UnitId, list[EngineConfig]] = {}
    for config in configured:
        urls.setdefault(UnitId(config.unit, SYSTEM_MANAGER), []).append(config)
    fronts = _fronts_by_unit(processes.by_pid.values())
    found: list[EngineServer] = []
    for unit in sorted(units.units, key=lambda unit: unit.id):
        if not is_up(unit) or unit.sub_state in _BEFORE_MAIN:
            continue
        main = processes.by_pid.get(unit.main_pid)
        if main is not None and main.placement.unit != unit.id:  # another process has its pid by now
            main = None
        members = [
            process
            for process in fronts.get(unit.id, ())
            if main is None or process.id.start_ticks >= main.id.start_ticks
        ]
        activating = unit.active_state == "activating"
        own_urls = [url for name in unit.names for url in urls.get(UnitId(name, unit.id.manager), ())]
        if own_urls:
            first = min(members, key=lambda process: process.id.start_ticks, default=main)
            starting = activating or (first is not None and first.id.start_ticks >= young_from_ticks)
            found += [_configured(unit, url, members, first, starting=starting) for url in own_urls]
            continue
        for group in _groups(members):
            young = group[0].id.start_ticks >= young_from_ticks
            models = _models_of_router(group[0], processes)
            for each in [[model] for model in models] or [group]:
                found += _discovered(unit, each, starting=activating or young)
    return tuple(found)


def _fronts_by_unit(processes: Iterable[Process]) -> Mapping[UnitId, list[Process]]:
    by_unit: dict[UnitId, list[Process]] = {}
    for process in processes:
        if process.role in _FRONTS and process.placement.unit is not None and not process.zombie:
            by_unit.setdefault(process.placement.unit, []).append(process)
    return by_unit


def _groups(fronts: Sequence[Process]) -> list[list[Process]]:
    """Give each launcher, or API server of its own, with the API servers below it; by start."""
    by_pid = {process.id.pid: process for process in fronts}
    groups: dict[int, list[Process]] = {}
    for process in sorted(fronts, key=lambda process: (process.id.start_ticks, process.id.pid)):
        top = process
        for _ in fronts:  # parents may form a circle, as they are not all read at the same instant
            parent = by_pid.get(top.ppid)
            if parent is None or parent.engine != process.engine:
                break
            top = parent
        group = groups.setdefault(top.id.pid, [])
        group.insert(0 if process is top else len(group), process)
    return list(groups.values())


def _models_of_router(top: Process, processes: ProcessTable) -> list[Process]:
    """Give the servers that a llama-server in router mode runs, one a model: they have the metrics (tools/server)."""
    if top.engine != "llamacpp":
        return []
    children = (processes.by_pid.get(pid) for pid in processes.children.get(top.id.pid, ()))
    models = [child for child in children if child is not None and child.role is Role.WORKER and not child.zombie]
    return sorted((model for model in models if model.argv[:1] == top.argv[:1]), key=lambda model: model.id.start_ticks)


def _discovered(unit: Unit, group: list[Process], *, starting: bool) -> list[EngineServer]:
    top = group[0]
    if top.engine not in SCRAPED_ENGINES or parse_listen_arguments(top.engine, top.argv).headless:
        return []
    ids = tuple(process.id for process in group)
    return [
        EngineServer(
            unit=unit.id,
            engine=top.engine,
            processes=ids,
            argv=top.argv,
            run=unit.invocation_id,
            starting=starting,
        )
    ]


def _configured(
    unit: Unit, configured: EngineConfig, members: list[Process], first: Process | None, *, starting: bool
) -> EngineServer:
    return EngineServer(
        unit=unit.id,
        engine=members[0].engine if members else engine_of(unit),
        url=configured.url,
        token_file=configured.token_file,
        processes=(first.id,) if first is not None else (),
        run=unit.invocation_id,
        starting=starting,
    )
