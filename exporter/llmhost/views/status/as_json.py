"""`llmhost status --json`: the status for programs. Pure.

What could not be read is null, never 0. Sizes are bytes, times seconds, points in time seconds since the epoch. Fields
may be added within one schema version; one that changes its meaning or goes makes a new one.
"""

import json
import math
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from llmhost.decide.health import Health
from llmhost.derive.facts import UnitFacts
from llmhost.derive.host_view import HostView
from llmhost.derive.startable import shortages
from llmhost.model.engine import EngineAnswer, EngineSample
from llmhost.model.gpu import Gpu
from llmhost.model.history.unit_history import Start, UnitHistory
from llmhost.model.ids import UnitId
from llmhost.model.reading import Failed, NotApplicable, Ok, Reading, mapped, value_or_none
from llmhost.views.status.gpus import attribution_of, holder_groups
from llmhost.views.status.leftovers import allocated_bytes, segments_by_state

SCHEMA_VERSION: Final = 1


def status_json(view: HostView, health: Health, *, all_starts: bool = False) -> str:
    """Write the host; with `all_starts` also each start that is kept of its units."""
    snapshot = view.snapshot
    whole = {
        "schema_version": SCHEMA_VERSION,
        "at": snapshot.at,
        "health": health.level,
        "findings": [
            {"kind": finding.kind, "subject": finding.subject, "what": finding.what} for finding in health.findings
        ],
        "gpus": [_gpu(gpu, view) for gpu in snapshot.nvml.value.gpus] if isinstance(snapshot.nvml, Ok) else None,
        "driver_version": snapshot.nvml.value.driver_version if isinstance(snapshot.nvml, Ok) else None,
        "units": [_unit(unit, view, all_starts=all_starts) for unit in view.facts.units.value]
        if isinstance(view.facts.units, Ok)
        else None,
        "orphans": _orphans(view),
        "trackers": _trackers(view),
        "shared_memory": _shm(view),
        "cannot_be_seen": [
            {"subject": unknown.subject, "cause": unknown.cause, "detail": unknown.detail, "matters": unknown.matters}
            for unknown in health.unknowns
        ],
    }
    return json.dumps(_finite(whole), indent=2, allow_nan=False) + "\n"


def _finite(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    """JSON has no NaN and no infinity; engines may send both (RFC 8259, 6)."""
    match value:
        case float():
            return value if math.isfinite(value) else None
        case dict():
            return {str(key): _finite(item) for key, item in value.items()}
        case list():
            return [_finite(item) for item in value]
        case _:
            return value


def _reading(reading: Reading[Any]) -> dict[str, Any]:
    """Write a value, or the cause why there is none."""
    match reading:
        case Ok(value):
            return {"value": value}
        case Failed(cause, detail):
            return {"value": None, "cause": str(cause), "detail": detail}
        case NotApplicable(why):
            return {"value": None, "cause": "not_applicable", "detail": why}


def _gpu(gpu: Gpu, view: HostView) -> dict[str, Any]:
    memory = value_or_none(gpu.memory)
    attribution = attribution_of(gpu, view)
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "name": gpu.name,
        "pci_bus_id": gpu.pci_bus_id,
        "parent_uuid": gpu.parent_uuid,
        "fault": gpu.fault,
        "total_bytes": memory.total_bytes if memory is not None else None,
        "used_bytes": memory.used_bytes if memory is not None else None,
        "free_bytes": memory.free_bytes if memory is not None else None,
        "unified_memory": gpu.unified_memory,
        "fabric_ready": gpu.fabric_ready,
        "xids": {str(xid.number): xid.count for xid in gpu.xids},
        "holders": [
            {
                "kind": group.kind,
                **_unit_id(group.unit),
                "pids": list(group.pids),
                "used_bytes": group.used_bytes,
            }
            for group in holder_groups(attribution.value)
            if group.kind is not None
        ]
        if isinstance(attribution, Ok)
        else None,
        "unattributed_bytes": value_or_none(attribution.value.unattributed_bytes)
        if isinstance(attribution, Ok)
        else None,
    }


def _unit_id(unit: UnitId | None) -> dict[str, str | None]:
    return {"unit": None, "manager": None} if unit is None else {"unit": unit.name, "manager": unit.manager}


def _unit(facts: UnitFacts, view: HostView, *, all_starts: bool) -> dict[str, Any]:
    unit = facts.unit
    record = view.history.units.get(unit.id)
    readiness = view.history.readiness.get(unit.id)
    gpus = view.snapshot.gpus
    refused = facts.startable == Ok(False)
    answers = view.snapshot.engines.value.answers if isinstance(view.snapshot.engines, Ok) else ()
    return {
        **_unit_id(unit.id),
        "load_state": unit.load_state,
        "active_state": unit.active_state,
        "sub_state": unit.sub_state,
        "result": unit.result,
        "nrestarts": unit.nrestarts,
        "state_change_at": unit.state_change_at,
        "engine": facts.engine,
        "guarded": facts.guarded,
        "wanted": value_or_none(facts.should_run),
        "gives_up": value_or_none(facts.start_limit_can_trip),
        "start_limit_hit": value_or_none(mapped(facts.start_limit_hit, lambda hit: hit is not None)),
        "processes": {str(role): number for role, number in facts.processes.value.items()}
        if isinstance(facts.processes, Ok)
        else None,
        "leftover_processes": len(facts.leftovers.value) if isinstance(facts.leftovers, Ok) else None,
        "startable": _reading(facts.startable),
        "missing": [
            {
                "gpu": short.gpu,
                "uuid": short.uuid,
                "needed_bytes": short.needed_bytes,
                "free_bytes": short.free_bytes,
                "why": short.why,
            }
            for short in (shortages(facts.gpus, facts.needed, gpus, view.snapshot.host) if refused else ())
        ],
        "history": None if record is None else _history(record, all_starts=all_starts),
        "guard": _guard(unit.id, view),
        "ready_seconds": list(readiness.past_seconds) if readiness is not None else [],
        "servers": [_server(answer, view) for answer in answers if answer.unit == unit.id],
    }


def _guard(unit: UnitId, view: HostView) -> dict[str, Any] | None:
    runs = view.snapshot.guard_runs
    run = next((run for run in runs.value if run.unit == unit), None) if isinstance(runs, Ok) else None
    if run is None:
        return None
    return {
        "at": run.at,
        "wait_seconds": run.wait_seconds,
        "verdict": run.verdict,
        "runs": {str(verdict): number for verdict, number in run.runs_total.items()},
    }


def _history(record: UnitHistory, *, all_starts: bool) -> dict[str, Any]:
    starts: dict[str, dict[str, int]] = {}
    for (trigger, verdict), number in record.starts_total.items():
        starts.setdefault(trigger, {})[verdict] = number
    return {
        "starts": starts,
        "failures": dict(record.failures_total),
        "unexpected_stops": record.unexpected_stops_total,
        "release_seconds": record.last_release_seconds,
        "last_start": None if record.latest is None else _start(record.latest),
        "last_judged_start": None if record.last_judged is None else _start(record.last_judged),
        **({"kept_starts": [_start(start) for start in record.starts]} if all_starts else {}),
    }


def _start(start: Start) -> dict[str, Any]:
    return {
        "at": start.at,
        "invocation_id": start.invocation_id,
        "trigger": start.trigger,
        "attempt": start.attempt,
        "verdict": start.verdict,
        "unknown_because": start.unknown_because,
        "in_the_way": [
            {"gpu": way.gpu, "uuid": way.uuid, "kind": way.kind, "used_bytes": way.used_bytes}
            for way in start.in_the_way
        ],
        "short": [{"gpu": short.gpu, "uuid": short.uuid, "short_bytes": short.short_bytes} for short in start.short],
        "end": None
        if start.end is None
        else {"at": start.end.at, "result": start.end.result, "seconds": start.end.seconds, "asked": start.end.asked},
    }


def _server(answer: EngineAnswer, view: HostView) -> dict[str, Any]:
    rate = view.rates.get((answer.unit, answer.endpoint))
    return {
        "endpoint": answer.endpoint,
        "engine": answer.engine,
        "fault": answer.samples.cause if isinstance(answer.samples, Failed) else None,
        "generation_tokens_per_second": rate.generation_tokens if rate is not None else None,
        "prompt_tokens_per_second": rate.prompt_tokens if rate is not None else None,
        "engines": [_engine(sample) for sample in answer.samples.value] if isinstance(answer.samples, Ok) else None,
    }


def _engine(sample: EngineSample) -> dict[str, Any]:
    return {
        "model": sample.model,
        "index": sample.engine_index,
        "generation_tokens": sample.generation_tokens,
        "requests_running": sample.requests_running,
        "requests_waiting": sample.requests_waiting,
        "kv_cache_usage_ratio": sample.kv_cache_usage_ratio,
        "sleeping": sample.sleeping,
    }


def _orphans(view: HostView) -> list[Mapping[str, Any]] | None:
    if not isinstance(view.facts.orphans, Ok):
        return None
    return [
        {
            "pid": orphan.process.id.pid,
            "start_ticks": orphan.process.id.start_ticks,
            "comm": orphan.process.comm,
            "engine": orphan.engine,
            "role": orphan.process.role,
            "seconds": orphan.seconds,
            "inferred": orphan.inferred,
        }
        for orphan in view.facts.orphans.value
    ]


def _trackers(view: HostView) -> Mapping[str, int] | None:
    trackers = view.facts.trackers
    return dict(Counter(str(state) for state in trackers.value.values())) if isinstance(trackers, Ok) else None


def _shm(view: HostView) -> Mapping[str, Any] | None:
    shared, found = view.snapshot.shm, segments_by_state(view)
    if not isinstance(shared, Ok) or found is None:
        return None
    return {
        "size_bytes": shared.value.size_bytes,
        "used_bytes": shared.value.used_bytes,
        "unlisted": shared.value.unlisted,
        "segments": [
            {"state": state, "kind": kind, "count": len(segments), "allocated_bytes": allocated_bytes(segments)}
            for (state, kind), segments in sorted(found.items())
        ],
    }
