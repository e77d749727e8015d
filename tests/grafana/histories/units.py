"""A watched unit in a written history: its states over time, and the series that follow from them.

Unit(
    host, "vllm.service", gpus={0: 85e9}, port=8000,
    does=[(-DAY, "serves"), (3 * HOUR, "waits to restart"), (3 * HOUR + 30, "loads"), (4 * HOUR, "serves")],
    starts=[Start(-DAY, "manual", "clean"), Start(3 * HOUR + 30, "auto", "resident")],
    ends=[End(3 * HOUR, "exit-code", 1)],
).write()
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.grafana.histories.hosts import Gpus
from tests.grafana.histories.series import At, Rises, Step, Steps, Texts, count

from llmhost.model.history.unit_history import Trigger, Verdict
from llmhost.model.unit import ACTIVE_STATES, SERVICE_RESULTS

FAILURES = tuple(result for result in SERVICE_RESULTS if result != "success")
# What a unit does: ActiveState, SubState, cause of the fault of its engine ("" where it answers, None where none is
# asked).
_DOES: Mapping[str, tuple[str, str, str | None]] = {
    "serves": ("active", "running", ""),
    "hangs": ("active", "running", ""),
    "does not answer": ("active", "running", "timeout"),
    "loads": ("active", "running", "starting"),
    "waits for memory": ("activating", "start-pre", None),
    "waits to restart": ("activating", "auto-restart", None),
    "stops": ("deactivating", "stop-sigterm", None),
    "rests": ("inactive", "dead", None),
    "has failed": ("failed", "failed", None),
}
_DOWN = {"waits to restart", "rests", "has failed"}
HAS_MAIN = {"serves", "hangs", "does not answer", "loads", "stops"}


class Start(NamedTuple):
    at: float
    trigger: str
    verdict: str
    judged: float | None = None  # when its main process starts, where that is later


class End(NamedTuple):
    at: float
    result: str
    status: int


class Traffic(NamedTuple):
    """The traffic of an engine while its unit serves: rates for each second, and amounts at any moment."""

    model: str
    generation: float = 1500
    prompt: float = 6000
    steps: float = 40
    finished: float = 3
    running: float = 24
    waiting: float = 2
    kv_cache: float = 0.62


@dataclass(frozen=True, slots=True, kw_only=True)
class Unit:
    gpus: Gpus
    name: str
    needs: Mapping[int, float]  # GPU -> bytes
    does: Sequence[tuple[float, str]]
    starts: Sequence[Start]
    ends: Sequence[End] = ()
    engine: str = "vllm"
    port: int = 8000
    traffic: Traffic | None = None
    ready_seconds: Sequence[tuple[float, float | None]] = ()
    room: Steps = ((0, 1),)  # whether a start would find what it needs
    leftovers: Steps = ((0, 0),)
    in_the_way: Mapping[tuple[int, str], Steps] = field(default_factory=dict)  # (GPU, kind)
    short: Mapping[int, Steps] = field(default_factory=dict)  # by GPU
    restarts_short: Steps = ()  # whether each restart that failed was
    guarded: Texts = ((0, "false"),)
    kill_mode: str = "control-group"
    unit_file_state: str = "enabled"
    gives_up: Steps = ((0, 0),)

    @property
    def labels(self) -> dict[str, str]:
        return {"unit": self.name, "manager": "system"}

    def write(self) -> None:
        self._now()
        self._settings()
        self._past()
        self._engine()

    def where(self, does: set[str], value: Step, otherwise: Step = None) -> list[tuple[float, Step]]:
        return [(at, value if state in does else otherwise) for at, state in self.does]

    def _now(self) -> None:
        host, unit_labels = self.gpus.host, self.labels
        active = [(at, _DOES[state][0]) for at, state in self.does]
        host.state("llmhost_unit_active_state", "state", ACTIVE_STATES, active, **unit_labels)
        host.current(
            "llmhost_unit_sub_state", "state", [(at, _DOES[state][1]) for at, state in self.does], **unit_labels
        )
        host.set("llmhost_unit_wanted", self.where({"rests"}, 0, 1), **unit_labels)
        host.set("llmhost_unit_state_change_timestamp_seconds", [(at, At(at)) for at, _ in self.does], **unit_labels)
        host.set("llmhost_unit_startable", both(self.where(_DOWN, 1), self.room), **unit_labels)
        host.set("llmhost_unit_leftover_processes", self.leftovers, **unit_labels)

    def _settings(self) -> None:
        host, unit_labels = self.gpus.host, self.labels
        info = {
            "load_state": "loaded",
            "unit_file_state": self.unit_file_state,
            "service_type": "exec",
            "restart": "on-failure",
        }
        info |= {"engine": self.engine, "kill_mode": self.kill_mode}
        host.current("llmhost_unit_info", "guarded", self.guarded, **unit_labels, **info)
        host.set("llmhost_unit_gives_up", self.gives_up, **unit_labels)
        host.set("llmhost_unit_ready_budget_seconds", 1800, **unit_labels)
        for gpu, needed in self.needs.items():
            host.set(
                "llmhost_unit_gpu_memory_needed_bytes",
                self.gpus.until_lost(gpu, [(0, needed)]),
                **unit_labels,
                **self.gpus.labels(gpu),
            )

    def _past(self) -> None:
        host, unit_labels = self.gpus.host, self.labels
        for trigger in Trigger:
            for verdict in Verdict:
                seconds = [start.judged or start.at for start in self.starts if start[1:3] == (trigger, verdict)]
                host.set("llmhost_unit_starts_total", count(seconds), **unit_labels, trigger=trigger, verdict=verdict)
        starts = [(start.at, At(start.at)) for start in self.starts]
        host.set("llmhost_unit_last_start_timestamp_seconds", starts, **unit_labels)
        resident = [(start.at, At(start.at)) for start in self.starts if start.verdict == "resident"]
        if resident:
            host.set("llmhost_unit_last_resident_start_timestamp_seconds", resident, **unit_labels)
        for (gpu, kind), steps in self.in_the_way.items():
            labels = self.gpus.labels(gpu) | {"kind": kind}
            host.set("llmhost_unit_last_start_in_the_way_bytes", steps, **unit_labels, **labels)
        for gpu, steps in self.short.items():
            host.set("llmhost_unit_last_start_short_bytes", steps, **unit_labels, **self.gpus.labels(gpu))
        if self.short:
            host.set("llmhost_unit_restarts_short_of_memory", self.restarts_short, **unit_labels)
        failed = [end for end in self.ends if end.result != "success"]
        by_result = {result: count([end.at for end in failed if end.result == result]) for result in FAILURES}
        host.counts("llmhost_unit_failures_total", "result", FAILURES, by_result, **unit_labels)
        host.set("llmhost_unit_unexpected_stops_total", 0, **unit_labels)

    def _engine(self) -> None:
        if not self.traffic:
            return
        host = self.gpus.host
        unit_labels = self.labels | {"engine": self.engine, "endpoint": f"http://127.0.0.1:{self.port}"}
        faults = [(at, _DOES[state][2]) for at, state in self.does]
        host.set(
            "llmhost_engine_up",
            [(at, None if cause is None else float(not cause)) for at, cause in faults],
            **unit_labels,
        )
        host.current("llmhost_engine_fault", "cause", [(at, cause or None) for at, cause in faults], **unit_labels)
        if self.ready_seconds:
            host.set("llmhost_engine_ready_seconds", self.ready_seconds, **unit_labels)
        unit_labels |= {"model": self.traffic.model, "engine_index": "0"}
        for name, rate in (
            ("generation_tokens", self.traffic.generation),
            ("prompt_tokens", self.traffic.prompt),
            ("steps", self.traffic.steps),
            ("preemptions", 0),
        ):
            host.set(f"llmhost_engine_{name}_total", self._served(rate), **unit_labels)
        for reason, share in (("stop", 0.75), ("length", 0.25), ("abort", 0)):
            steps = self._served(share * self.traffic.finished)
            host.set("llmhost_engine_requests_finished_total", steps, **unit_labels, reason=reason)
        for name, value in (
            ("requests_running", self.traffic.running),
            ("requests_waiting", self.traffic.waiting),
            ("kv_cache_usage_ratio", self.traffic.kv_cache),
            ("sleeping", 0),
        ):
            host.set(f"llmhost_engine_{name}", self.where({"serves", "hangs"}, value), **unit_labels)

    def _served(self, rate: float) -> list[tuple[float, Step]]:
        """Count from 0 whenever it begins to serve; what hangs counts no further."""
        steps: list[tuple[float, Step]] = []
        for at, state in self.does:
            if state == "serves":
                steps.append((at, Rises(rate, start=0)))
            else:
                steps.append((at, Rises(0) if state == "hangs" else None))
        return steps


def both(these: Sequence[tuple[float, Step]], those: Steps) -> list[tuple[float, Step]]:
    """Give what those have wherever these have anything."""
    made: list[tuple[float, Step]] = []
    for moment in sorted({at for steps in (these, those) for at, _ in steps}):
        own = [step for at, step in these if at <= moment][-1:]
        other = [step for at, step in those if at <= moment][-1:]
        made.append((moment, other[0] if other and own not in ([], [None]) else None))
    return made
