"""The signals that would end the guard: noted from its first moment on, and acted on between two steps of its wait.

`systemctl stop` sends what the unit's KillSignal= says. A guard that dies of it leaves a failed unit and no last line.
Imported before all else: it may import nothing that takes time.
"""

import os
import signal
from collections.abc import Callable
from types import FrameType

_Handler = Callable[[int, FrameType | None], object] | int | None

# SIGKILL and SIGSTOP cannot be noted. What comes from a fault in the program itself would only come again and again.
_OF_FAULTS = {signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGILL, signal.SIGTRAP, signal.SIGSYS}
_HARMLESS = {signal.SIGCHLD, signal.SIGCONT, signal.SIGURG, signal.SIGWINCH}  # they end nobody by default
_STOPPING = {signal.SIGTSTP, signal.SIGTTIN, signal.SIGTTOU}  # at a terminal
_IGNORED_BY_PYTHON = {signal.SIGPIPE, signal.SIGXFSZ}
_NOT_NOTED = _OF_FAULTS | _HARMLESS | _STOPPING | _IGNORED_BY_PYTHON | {signal.SIGKILL, signal.SIGSTOP}


class EndingSignals:
    """For use by the main thread alone."""

    def __init__(self) -> None:
        self._before: dict[int, _Handler] = {}  # what each did, of those that are noted
        self.first = 0  # the number of the first that came; 0: none

    def note(self) -> None:
        """Only note them from now on. What is ignored stays ignored, as with nohup(1), but not in a service's start."""
        for number in signal.valid_signals() - _NOT_NOTED:
            before = signal.getsignal(number)
            if before != self._note and (before is not signal.SIG_IGN or is_systemds_own_process()):
                self._before[number] = before
                signal.signal(number, self._note)

    def release(self) -> None:
        """From now on they do what they did before."""
        for number, before in self._before.items():
            signal.signal(number, before)
        self._before.clear()

    @property
    def name(self) -> str:
        """The name of the first that came, as kill(1) has it; "" for none."""
        if not self.first:
            return ""
        if self.first > signal.SIGRTMIN:
            return f"SIGRTMIN+{self.first - signal.SIGRTMIN}"
        return signal.Signals(self.first).name

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self.first = self.first or number


def is_systemds_own_process() -> bool:
    """Say whether systemd itself started this process (systemd.exec(5)); it ignores no signal that we note."""
    return os.environ.get("SYSTEMD_EXEC_PID") == str(os.getpid())


ENDING_SIGNALS = EndingSignals()
