"""The guard's loop: read, step, act. SIGTERM and SIGINT are noticed between two steps."""

import logging
import signal
import time
from collections.abc import Mapping
from types import FrameType, TracebackType
from typing import TYPE_CHECKING, Self

from llmhost.decide.guard.machine import step
from llmhost.decide.guard.state import Ask, Configure, Extend, Finish, GuardState, Inform, Say, Topic, Watch
from llmhost.guard.readings import GuardReadings
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


class Signals:
    """Until the end of its `with`, SIGTERM and SIGINT are only noted. Afterwards they end this process."""

    def __init__(self) -> None:
        self._number = 0  # of the first that came; 0: none

    def __enter__(self) -> Self:
        self._at_interrupt = signal.getsignal(signal.SIGINT)
        if self._at_interrupt is not signal.SIG_IGN:
            signal.signal(signal.SIGINT, self._note)
        signal.signal(signal.SIGTERM, self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        signal.signal(signal.SIGINT, self._at_interrupt)

    def terminated(self) -> bool:
        """Say whether SIGTERM came. Raises KeyboardInterrupt for SIGINT."""
        if self._number == signal.SIGINT:
            raise KeyboardInterrupt
        return self._number == signal.SIGTERM

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._number = self._number or number


class Loop:
    def __init__(
        self, state: GuardState, readings: GuardReadings, notifier: Notifier, remedies: "Remedies | None"
    ) -> None:
        self._state = state
        self._readings = readings
        self._notifier = notifier
        self._remedies = remedies

    def run(self) -> Finish:
        """Step until the run ends. SIGTERM ends it also if it comes during the last step: nothing is let on then."""
        with Signals() as signals:
            end = self._until_end(signals)
        return end if end.terminated or not signals.terminated() else self._until_end(signals)

    def _until_end(self, signals: Signals) -> Finish:
        try:
            return self._run(signals)
        except Exception:
            if not signals.terminated():
                raise
            log.exception("this is a bug in llmhost")
            return Finish(verdict=self._state.verdict_so_far, terminated=True)

    def _run(self, signals: Signals) -> Finish:
        while True:
            progress = self._remedies.progress if self._remedies is not None else None
            inputs = self._readings.take(progress, terminated=signals.terminated())
            self._state, actions = step(self._state, inputs, time.monotonic())
            for action in actions:
                if isinstance(action, Finish):
                    return action
                self._perform(action)
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
                self._notifier.send(EXTEND_TIMEOUT_USEC=str(int(seconds * 1e6)))
            case Inform():
                if self._remedies is not None:
                    self._remedies.take_in(action)
            case Say():
                log.log(_LEVELS.get(action.topic, logging.WARNING), "%s", log_line(action, self._state.target))
                if status := status_line(action):
                    self._notifier.send(STATUS=status)
