import threading
import time

import pytest

from llmhost.runtime.bounded_call import BoundedCall


def test_a_result_is_returned_and_an_error_is_raised() -> None:
    def broken() -> None:
        raise ValueError("x")

    until = time.monotonic() + 5
    assert BoundedCall(lambda: 7, name="seven").result(until) == 7
    with pytest.raises(ValueError, match="x"):
        BoundedCall(broken, name="broken").result(until)


def test_a_call_that_hangs_is_left_behind() -> None:
    release = threading.Event()
    call = BoundedCall(lambda: release.wait(60), name="hung")
    with pytest.raises(TimeoutError):
        call.result(time.monotonic() + 0.05)
    release.set()
    assert call.result(time.monotonic() + 5) is True
