"""A call with a limit on its time, for what may hang: a dead mount, a driver that does not answer."""

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class BoundedCall(Generic[T]):
    """A call that runs in a daemon thread of its own from now on; a call that hangs is left behind."""

    def __init__(self, call: Callable[[], T], *, name: str) -> None:
        self._call = call
        self._results: list[T] = []
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._results.append(self._call())
        except Exception as error:  # noqa: BLE001 - `result` raises it
            self._error = error

    @property
    def is_done(self) -> bool:
        """True once the call has come back, with a result or an error."""
        return not self._thread.is_alive()

    def result(self, until: float) -> T:
        """Wait for the result until then on the monotonic clock. Raises what the call raised, or TimeoutError."""
        self._thread.join(max(0.0, until - time.monotonic()))
        if self._error is not None:
            raise self._error
        if not self._results:
            raise TimeoutError
        return self._results[0]
