"""Units of a real systemd, watched by the source, with the history that its events make.

with Watched(booted, "vllm.service") as watched:
    booted.systemctl("start", "vllm.service")
    watched.until(lambda: watched.counts("vllm.service") == {"manual not_started": 1})
"""

import threading
import time
from collections import Counter
from collections.abc import Callable
from types import TracebackType
from typing import Any, Self

from tests.fakes.booted import Booted

from llmhost.derive.history.events import Step, with_event
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import Trigger, UnitHistory, Verdict
from llmhost.model.ids import UnitId
from llmhost.model.unit import Unit
from llmhost.model.unit_event import UnitEvent
from llmhost.sources.systemd.source import SystemdSource

_POLL_SECONDS = 0.02


class Watched:
    """Keeps a history, as the exporter does, without judging: what got as far as a main process stays without verdict.

    `starts` counts each of them by trigger and by what became of it, also those that the record no longer holds.
    """

    def __init__(self, booted: Booted, *patterns: str, **settings: Any) -> None:  # noqa: ANN401
        self.history = History(boot_id="b")
        self.events: list[UnitEvent] = []
        self.steps: list[Step] = []
        self.keep_events = True
        self._latest: dict[str, Unit] = {}
        self._began: dict[UnitId, dict[str, tuple[Trigger | None, Verdict | None]]] = {}
        self._changed = threading.Condition()
        self.source = SystemdSource(
            patterns=patterns,
            address=booted.bus_address,
            root=booted.root,
            on_event=self._on_event,
            **{"discover": False, "is_engine_command": lambda _: False, **settings},
        )

    def __enter__(self) -> Self:
        self.source.start()
        self.source.read(time.monotonic() + 10)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.source.close()

    def _on_event(self, event: UnitEvent) -> None:
        with self._changed:
            self.history, steps = with_event(self.history, event)
            record = self.history.units[event.unit.id]
            self._latest[event.unit.id.name] = event.unit
            began = self._began.setdefault(event.unit.id, {})
            began.update({start.invocation_id: (start.trigger, start.verdict) for start in record.starts[-2:]})
            if self.keep_events:
                self.events.append(event)
                self.steps += steps
            self._changed.notify_all()

    def until(self, condition: Callable[[], bool], seconds: float = 120.0) -> None:
        """Wait until it holds; it is checked after each event, and now and then."""
        end = time.monotonic() + seconds
        with self._changed:
            while not condition():
                assert time.monotonic() < end, f"it never came true: {self.history.units}"
                self._changed.wait(_POLL_SECONDS)

    def names(self) -> set[str]:
        return {unit.name for unit in self.history.units}

    def unit(self, name: str) -> Unit:
        """Give the last report of it."""
        return self._latest[name]

    def record(self, name: str) -> UnitHistory:
        return self.history.units[UnitId(name)]

    def verdicts(self, name: str) -> dict[str, tuple[Trigger | None, Verdict | None]]:
        """All starts that were seen, by InvocationID."""
        return dict(self._began.get(UnitId(name), {}))

    def triggers(self, name: str) -> Counter[Trigger]:
        """All starts that are counted, judged or not, by trigger."""
        unit = UnitId(name)
        counted: Counter[Trigger] = Counter()
        if unit in self.history.units:
            for (trigger, _), count in self.history.units[unit].starts_total.items():
                counted[trigger] += count
        for started in self._without_verdict(unit, forgotten=False):
            counted[started] += 1
        return counted

    def counts(self, name: str) -> dict[str, int]:
        """All starts by trigger and by whether the main process was reached: `manual main`, `auto not_started`."""
        unit = UnitId(name)
        counted: Counter[str] = Counter()
        if unit in self.history.units:
            for (trigger, verdict), count in self.history.units[unit].starts_total.items():
                counted[f"{trigger} {verdict}"] += count
        for started in self._without_verdict(unit, forgotten=False):
            counted[f"{started} main"] += 1
        for started in self._without_verdict(unit, forgotten=True):
            counted[f"{started} main"] += 1
            counted[f"{started} {Verdict.UNKNOWN}"] -= 1  # as which the record counts what it forgets
        return {key: count for key, count in counted.items() if count}

    def _without_verdict(self, unit: UnitId, *, forgotten: bool) -> list[Trigger]:
        """Give the triggers of starts without a verdict: those that the history still has, or no longer."""
        kept = (
            {start.invocation_id for start in self.history.units[unit].starts} if unit in self.history.units else set()
        )
        return [
            started
            for invocation, (started, became) in self._began.get(unit, {}).items()
            if started is not None and became is None and (invocation in kept) is not forgotten
        ]
