"""The guard's loop: read, step, act. Signals are acted on between two steps."""

import logging
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from llmhost.decide.guard.machine import step
from llmhost.decide.guard.state import Admit, Ask, Configure, Extend, Finish, GuardState, Inform, Say, Topic, Watch
from llmhost.guard.admitting import Admitting
from llmhost.guard.ending_signals import EndingSignals
from llmhost.guard.readings import GuardReadings
from llmhost.model.reading import Ok
from llmhost.model.unit import Unit
from llmhost.sources.sd_notify import Notifier
from llmhost.views.guard.lines import log_line, status_line

if TYPE_CHECKING:
    from llmhost.guard.remedies import Remedies

log = logging.getLogger(__name__)

_POLL_SECONDS = 0.1
_PENDING_SECONDS = 0.005  # while answers are on their way
_LEVELS: Mapping[Topic, int] = {
    Topic.WAITS: logging.INFO,
    Topic.FREE: logging.INFO,
    Topic.GIVES_UP: logging.ERROR,
    Topic.NEED_UNKNOWN: logging.ERROR,
    Topic.NO_CONFIG: logging.ERROR,
    Topic.NO_CONFIG_REFUSED: logging.ERROR,
    Topic.FILE_CAME: logging.INFO,
}


class Loop:
    def __init__(
        self,
        state: GuardState,
        readings: GuardReadings,
        notifier: Notifier,
        remedies: "Remedies | None",
        *,
        signals: EndingSignals,
        admitting: Admitting | None = None,
    ) -> None:
        self._state = state
        self._readings = readings
        self._notifier = notifier
        self._remedies = remedies
        self._signals = signals
        self._admitting = admitting

    def run(self) -> Finish:
        """Step until the run ends. A signal ends it also if it comes during the last step: nothing is let on then."""
        end = self._until_end()
        return end if end.terminated or not self._signals.first else self._until_end()

    @property
    def unit(self) -> Unit | None:
        """The target's unit, as systemd last told of it."""
        units = self._state.units.value.units if isinstance(self._state.units, Ok) else ()
        return next((unit for unit in units if unit.id == self._state.target.unit), None)

    def _until_end(self) -> Finish:
        try:
            return self._run()
        except Exception:
            if not self._signals.first:
                raise
            log.exception("this is a bug in llmhost")
            return Finish(verdict=self._state.verdict_so_far, terminated=True)

    def _run(self) -> Finish:
        while True:
            progress = self._remedies.progress if self._remedies is not None else None
            admissions = self._admitting.others() if self._admitting is not None else ()
            inputs = self._readings.take(progress, ended_by=self._signals.name)
            self._state, actions = step(self._state, replace(inputs, admissions=admissions), time.monotonic())
            for action in actions:
                if isinstance(action, Finish):
                    return action
                if not isinstance(action, Admit):
                    self._perform(action)
                elif self._admitting is not None and not self._admitting.admit(action):
                    break  # another guard was faster
            time.sleep(_PENDING_SECONDS if self._state.awaits_answers else _POLL_SECONDS)

    def _perform(self, action: Ask | Watch | Configure | Extend | Inform | Say) -> None:
        match action:
            case Ask(query):
                self._readings.ask(query)
            case Watch(units):
                self._readings.watch(units)
            case Configure(config, units):
                self._readings.configure(config, units)
            case Extend(seconds):
                self._notifier.extend(seconds)
            case Inform():
                if self._remedies is not None:
                    self._remedies.take_in(action)
            case Say():
                log.log(_LEVELS.get(action.topic, logging.WARNING), "%s", log_line(action, self._state.target))
                if status := status_line(action):
                    self._notifier.send(STATUS=status)
