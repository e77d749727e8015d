"""`llmhost clean --json`. Pure. Sizes are bytes, times seconds; what is not known is null."""

import json
from typing import Any, Final

from llmhost.decide.cleanup.steps import CleanupReport, Ending, Outcome, Plan, Skipped, Step
from llmhost.model.ids import UnitId
from llmhost.model.process import Process
from llmhost.model.segment import Segment

SCHEMA_VERSION: Final = 1


def clean_json(plan: Plan, report: CleanupReport | None = None) -> str:
    """Write a dry run's plan, or the one that was carried out and its outcomes.

    Fields may be added within one schema version.
    """
    whole: dict[str, Any] = {
        "schema_version": SCHEMA_VERSION,
        "applied": report is not None,
        "refused": plan.refused or None,
        "endings": [_step(ending) for ending in plan.endings],
        "removals": [_step(removal) for removal in plan.removals],
        "waiting": [_step(step) for step in plan.waiting],
        "left": [_skipped(skipped) for skipped in plan.skipped],
        "untold": list(plan.unknowns),
    }
    if report is not None:
        whole |= {
            "gone": [_step(step) for step in plan.gone],
            "outcomes": [_outcome(outcome) for outcome in report.outcomes],
            "not_begun": [_step(step) for step in report.not_begun],
            "complete": report.complete,
            "interrupted_by": report.interrupted_by or None,
            "freed": {"gpu_bytes": report.freed_gpu_bytes, "shm_bytes": report.freed_shm_bytes},
        }
    return json.dumps(whole, indent=2) + "\n"


def _step(step: Step) -> dict[str, Any]:
    if isinstance(step, Ending):
        return {
            "step": "end",
            "process": _process(step.process),
            "condition": step.condition,
            **_unit(step.unit),
            "gpu_bytes": step.gpu_bytes,
            "because": step.because,
        }
    return {
        "step": "remove",
        "file": _file(step.segment),
        **_unit(step.unit),
        "because": step.because,
        "after": [process.pid for process in sorted(step.after)],
    }


def _skipped(skipped: Skipped) -> dict[str, Any]:
    subject = (
        {"process": _process(skipped.subject)}
        if isinstance(skipped.subject, Process)
        else {"file": _file(skipped.subject)}
    )
    return {**subject, **_unit(skipped.unit), "because": skipped.because}


def _outcome(outcome: Outcome) -> dict[str, Any]:
    return {
        **_step(outcome.step),
        "result": outcome.result,
        "detail": outcome.detail,
        "seconds": round(outcome.seconds, 3),
    }


def _process(process: Process) -> dict[str, Any]:
    return {
        "pid": process.id.pid,
        "start_ticks": process.id.start_ticks,
        "comm": process.comm,
        "engine": process.engine or None,
        "role": process.role,
        "uid": process.uid,
    }


def _file(segment: Segment) -> dict[str, Any]:
    return {
        "path": segment.path,
        "device": segment.id.device,
        "inode": segment.id.inode,
        "kind": segment.kind,
        "size_bytes": segment.size_bytes,
        "allocated_bytes": segment.allocated_bytes,
        "changed_at": segment.changed_at,
        "uid": segment.uid,
    }


def _unit(unit: UnitId | None) -> dict[str, str | None]:
    return {"unit": None, "manager": None} if unit is None else {"unit": unit.name, "manager": unit.manager}
