"""A source whose reading is whatever the test says."""

from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class ScriptedSource(Generic[T]):
    """Answers by a function, which the test may replace; counts its reads."""

    def __init__(self, answer: Callable[[], T]) -> None:
        self.answer = answer
        self.reads = 0
        self.closed = False

    def read(self, _deadline: float) -> T:
        self.reads += 1
        return self.answer()

    def doing(self) -> str:
        return "nvmlDeviceGetMemoryInfo on GPU 3"

    def close(self) -> None:
        self.closed = True
