"""Lives of a unit, event by event: the sequences that systemd 252 sends, written down by hand."""

from dataclasses import replace
from typing import Any

from tests.fakes.values import unit

from llmhost.derive.history.events import Step, with_unit_event
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.unit import UnitSettings
from llmhost.model.unit_event import UnitEvent

SIMPLE = UnitSettings(service_type="simple", restart="on-failure")


class Life:
    """One unit, event by event; time is what the test says."""

    def __init__(self, **first: object) -> None:
        self.record: UnitHistory | None = None
        self.steps: list[Step] = []
        self.unit = unit("vllm.service", "inactive", "dead", settings=SIMPLE)
        self.unit = replace(self.unit, condition_monotonic=None, inactive_exit_monotonic=None)
        if first:
            self.tell(0.0, gap=True, **first)

    def tell(self, at: float, *, gap: bool = False, **changes: object) -> "Life":
        self.unit = replace(self.unit, **changes)  # type: ignore[arg-type]
        event = UnitEvent(unit=self.unit, at=1000.0 + at, at_monotonic=at, gap=gap)
        self.record, steps = with_unit_event(self.record, event)
        self.steps += steps
        return self

    def begins(self, at: float, invocation: str, pid: int = 0, *, job: int = 7, nrestarts: int | None = None) -> "Life":
        """Systemd shows a start in the state of before, then in its own."""
        count = self.unit.nrestarts if nrestarts is None else nrestarts
        if self.unit.sub_state == "auto-restart":  # it passes dead on its way
            self.unit = replace(self.unit, state_change_monotonic=at)
        self.tell(
            at,
            active_state=self.unit.active_state if self.unit.active_state == "failed" else "inactive",
            sub_state="failed" if self.unit.active_state == "failed" else "dead",
            invocation_id=invocation,
            condition_monotonic=at,
            main_pid=pid,
            exec_main_start_monotonic=at if pid else None,
            result="success",
            job=job,
            nrestarts=count,
        )
        if pid:
            self.tell(at + 0.001, active_state="active", sub_state="running", state_change_monotonic=at + 0.001)
        else:
            self.tell(at + 0.001, active_state="activating", sub_state="start-pre", state_change_monotonic=at + 0.001)
        return self.tell(at + 0.002, job=0) if pid else self

    def fails(self, at: float, result: str = "exit-code") -> "Life":
        """End a run by itself: failed for a moment, then waiting for its restart."""
        ended: dict[str, Any] = {
            "result": result,
            "main_pid": 0,
            "inactive_enter_monotonic": at,
            "state_change_monotonic": at,
        }
        self.tell(at, active_state="failed", sub_state="failed", **ended)
        return self.tell(
            at + 0.001, active_state="activating", sub_state="auto-restart", state_change_monotonic=at + 0.001
        )

    def restart_due(self, at: float, job: int = 8) -> "Life":
        return self.tell(at, nrestarts=(self.unit.nrestarts or 0) + 1, job=job)

    @property
    def now(self) -> UnitHistory:
        assert self.record is not None
        return self.record

    def counts(self) -> dict[str, int]:
        return {f"{trigger} {verdict}": count for (trigger, verdict), count in self.now.starts_total.items()}

    def attempts(self) -> list[tuple[str, str | None, int]]:
        return [(start.invocation_id, start.trigger, start.attempt) for start in self.now.starts]


def idle() -> Life:
    """Give a unit that is there and has not been started."""
    return Life(nrestarts=0)
