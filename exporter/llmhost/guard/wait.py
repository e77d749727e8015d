"""The wait: memory is read ten times a second, and nothing else but where there is somebody to name."""

import logging
import os
from dataclasses import replace
from time import sleep
from typing import TYPE_CHECKING

from llmhost.assemble.guard_sources import Gpus, Surroundings
from llmhost.collect.worker import Clock
from llmhost.config.schema import Config
from llmhost.decide.guard.decision import Decision, Wanted, decide, rule_of
from llmhost.decide.guard.memory_stability import Traces, advance
from llmhost.guard.readings import Looks
from llmhost.guard.target import OWN_LIMIT, Patience, Target
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.history.history import History
from llmhost.model.reading import Failed, Ok
from llmhost.model.unit import Unit, UnitSettings
from llmhost.sources.sd_notify import Notifier
from llmhost.views.guard.lines import Scene, is_free, next_step, waits_for, whose

if TYPE_CHECKING:
    from llmhost.guard.remedies import Remedies

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_PENDING_SECONDS = 0.005  # while first answers are on their way
_LINE_SECONDS = 5.0  # between two lines that say the same
_CHANGE_SECONDS = 1.0  # between two lines
_FIRST_SECONDS = 4.0  # however short the wait may be, the first answers are waited for
_SURE_SECONDS = 3.0  # for trouble that no waiting mends, and for systemd to come
_EXTEND_SECONDS = 1.0
_EXTENSION_SECONDS = 10.0


class Wait:
    def __init__(
        self,
        *,
        target: Target,
        wanted: Wanted,
        patience: Patience,
        gpus: Gpus,
        surroundings: Surroundings,
        config: Config,
        history: History,
        notifier: Notifier,
        remedies: "Remedies | None",
        clock: Clock,
    ) -> None:
        self.no_such_unit = False
        self._target = target
        self._wanted = wanted
        self._patience = patience
        self._looks = Looks(gpus, surroundings, config, history, clock)
        self._config = config
        self._notifier = notifier
        self._remedies = remedies
        self._surroundings = surroundings
        self._clock = clock
        self._traces: Traces = {}
        self._scene: Scene | None = None
        self._hopeless_since: float | None = None
        self._no_systemd_since: float | None = None
        self._told_at = -_LINE_SECONDS
        self._told: tuple[object, ...] | None = None
        self._warned = False
        self._extended_at = -_EXTEND_SECONDS

    @property
    def verdict_so_far(self) -> GuardVerdict:
        """What keeps the start waiting."""
        if self._scene is None or self._scene.decision.verdict is GuardVerdict.UNKNOWN:
            return GuardVerdict.UNKNOWN
        return GuardVerdict.HELD

    def until_told(self) -> GuardVerdict:
        """Wait until it is free, or there is no use in waiting."""
        while True:
            self._extend()
            self._read_memory()
            self._looks.take_facts(host_moves=self._host_moves())
            if self._remedies is not None:
                self._remedies.take_in(self._looks.snapshot())
            verdict = self._step()
            if verdict is not None:
                return verdict
            sleep(_POLL_SECONDS if self._looks.has_looked else _PENDING_SECONDS)

    def tell_terminated(self) -> None:
        what = f"it waited {self._waits_for(self._scene)}" if self._scene is not None else "nothing was known yet"
        self._last_line(logging.WARNING, f"ended by SIGTERM after {self._seconds():.1f} s: {what}")

    def _step(self) -> GuardVerdict | None:
        now = self._clock.monotonic()
        fault = self._fault(now)
        if fault:
            self._last_line(logging.ERROR, f"cannot tell what is needed: {fault}")
            return GuardVerdict.FAULT
        unit = self._unit()
        if self.no_such_unit:
            return GuardVerdict.FAULT
        decision = self._decide(unit) if unit is not None else None
        until, why_then = self._patience.until(unit, is_own=self._target.is_own)
        if decision is None or self._scene is None:
            if now < until or (why_then == OWN_LIMIT and self._seconds() < _FIRST_SECONDS):
                return None
            return self._give_up("neither the driver nor systemd has answered yet", why_then)
        if decision.verdict is GuardVerdict.FREE:
            if self._remedies is not None and self._remedies.pending and now < until:
                self._tell(self._scene, until)
                return None
            self._last_line(logging.INFO, f"free after {self._seconds():.1f} s: {is_free(self._scene)}")
            return GuardVerdict.FREE
        fabric = any(lack.why for lack in decision.lacks)  # that it has become ready a full look alone sees
        self._looks.look(self._scene, soon=fabric or not self._looks.all_read)
        self._scene = replace(self._scene, holders=self._looks.holders)
        if decision.no_use_to_wait:
            self._hopeless_since = now if self._hopeless_since is None else self._hopeless_since
        else:
            self._hopeless_since = None
        hopeless = self._hopeless_since is not None and now - self._hopeless_since >= _SURE_SECONDS
        if hopeless or (now >= until and not self._will_know_more(self._scene)):
            why = "no waiting mends that" if hopeless else why_then
            return self._give_up(f"waits {self._waits_for(self._scene)}", why)
        self._tell(self._scene, until)
        return None

    def _waits_for(self, scene: Scene) -> str:
        """Tell what is waited for, and who does not die."""
        stuck = self._remedies.stuck if self._remedies is not None else ""
        if scene.decision.verdict is GuardVerdict.FREE:
            return "for what ended runs have left to be gone (enough is free)"
        return f"{waits_for(scene)}; {stuck}" if stuck else waits_for(scene)

    def _next_step(self, scene: Scene) -> str:
        if self._remedies is not None and self._remedies.stuck:
            return "reset the GPU (nvidia-smi --gpu-reset), or reboot"
        return next_step(scene)

    def _will_know_more(self, scene: Scene) -> bool:
        """Whether it is known in a moment who holds the memory."""
        return bool(scene.decision.lacks) and not scene.holders and self._seconds() < _CHANGE_SECONDS

    def _fault(self, now: float) -> str:
        if self._target.fault:
            return self._target.fault
        units = self._looks.units
        if not self._target.needs_systemd or not isinstance(units, Failed):
            self._no_systemd_since = None
            return ""
        self._no_systemd_since = now if self._no_systemd_since is None else self._no_systemd_since
        if now - self._no_systemd_since < _SURE_SECONDS:
            return ""
        detail = f" ({units.detail})" if units.detail else ""
        return f"systemd cannot be asked: {str(units.cause).replace('_', ' ')}{detail}"

    def _unit(self) -> Unit | None:
        """Give what is to be started; None while that is not known."""
        if self._target.unit is None:
            return self._target.stand_in
        units = self._looks.units
        if isinstance(units, Ok):
            found = next((one for one in units.value.units if one.id == self._target.unit), None)
            self.no_such_unit = found is None or found.load_state == "not-found"
            if found is not None and found.load_state == "stub":
                self._warn_of_a_stub(found)
                return replace(found, settings=UnitSettings())
            if found is None or found.settings is None:
                return None
            if not self._target.is_own:
                return found
            # What systemd gave us it gives ExecStart= as well, from EnvironmentFile= and PassEnvironment= too.
            mine = tuple(os.environ.items())
            settings = replace(found.settings, environment=mine, environment_files=(), pass_environment=())
            return replace(found, settings=settings)
        return None if self._target.needs_systemd else self._target.stand_in

    def _warn_of_a_stub(self, unit: Unit) -> None:
        if not self._warned:
            self._warned = True
            log.warning(
                "systemd has not loaded %s, so what it runs is not known (systemctl show loads it)", unit.id.name
            )

    def _decide(self, unit: Unit) -> Decision | None:
        if self._looks.nvml is None or self._looks.host is None:
            return None
        snapshot = self._looks.snapshot()
        rule = rule_of(unit, self._wanted, snapshot, self._config, self._looks.history)
        shm = self._surroundings.sources.shm_free_bytes() if self._wanted.shm_bytes is not None else None
        decision = decide(rule, self._wanted, snapshot, self._traces, shm_free_bytes=shm)
        self._scene = Scene(
            decision=decision,
            rule=rule,
            wanted=self._wanted,
            holders=self._looks.holders,
            traces=self._traces,
            at=snapshot.at,
        )
        return decision

    def _read_memory(self) -> None:
        if self._looks.take_memory():
            report = self._looks.nvml
            used = report.value.used_bytes if isinstance(report, Ok) else {}
            self._traces = advance(self._traces, used, self._clock.monotonic())

    def _host_moves(self) -> bool:
        report = self._looks.nvml
        return isinstance(report, Ok) and any(gpu.unified_memory for gpu in report.value.gpus)

    def _give_up(self, what: str, why: str) -> GuardVerdict:
        verdict = self.verdict_so_far
        step = f". Next step: {self._next_step(self._scene)}" if self._scene is not None else ""
        known = "held" if verdict is GuardVerdict.HELD else "cannot tell"
        self._last_line(logging.ERROR, f"{known} after {self._seconds():.1f} s ({why}): {what}{step}")
        return verdict

    def _tell(self, scene: Scene, until: float) -> None:
        """Say what is waited for: at once, when it changes, and now and then."""
        now = self._clock.monotonic()
        decision = scene.decision
        enough = decision.trouble is None and not decision.lacks and decision.shm is None
        if enough and self._seconds() < self._wanted.settle_seconds + _CHANGE_SECONDS:
            return  # that is how every wait ends
        if self._told is None and self._will_know_more(scene):
            return
        telling = whose(scene)
        if now - self._told_at < (_LINE_SECONDS if telling == self._told else _CHANGE_SECONDS):
            return
        self._told_at, self._told = now, telling
        line = f"waits {self._waits_for(scene)}"
        log.info("%s %s; %.0f s of %.0f s", self._subject(), line, self._seconds(), until - self._patience.began)
        self._notifier.send(STATUS=f"guard: {line}")

    def _last_line(self, level: int, line: str) -> None:
        log.log(level, "%s: %s", self._subject(), line)
        self._notifier.send(STATUS=f"guard: {line}")

    def _extend(self) -> None:
        now = self._clock.monotonic()
        if now - self._extended_at >= _EXTEND_SECONDS and now < self._patience.began + self._patience.timeout_seconds:
            self._extended_at = now
            self._notifier.send(EXTEND_TIMEOUT_USEC=str(int(_EXTENSION_SECONDS * 1e6)))

    def _subject(self) -> str:
        return self._target.unit.name if self._target.unit is not None else "the start"

    def _seconds(self) -> float:
        return self._clock.monotonic() - self._patience.began
