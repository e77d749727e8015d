import threading
import time
from collections.abc import Callable

import pytest

from llmhost.runtime.mailbox import Mailbox


def test_items_are_taken_all_at_once_in_their_order() -> None:
    mailbox = Mailbox[int]()
    for item in (3, 1, 2):
        mailbox.put(item)
    assert mailbox.take(None) == ([3, 1, 2], False)
    assert mailbox.take(0.0) == ([], False)


def test_what_was_put_in_before_the_close_is_still_there() -> None:
    mailbox = Mailbox[str]()
    mailbox.put("last")
    mailbox.close()
    assert mailbox.take(None) == (["last"], True)
    assert mailbox.take(None) == ([], True)


@pytest.mark.parametrize(
    ("end", "expected"),
    [(lambda mailbox: mailbox.put(1), ([1], False)), (lambda mailbox: mailbox.close(), ([], True))],
)
def test_an_item_and_the_close_each_end_a_wait(
    end: Callable[[Mailbox[int]], None], expected: tuple[list[int], bool]
) -> None:
    mailbox = Mailbox[int]()
    taken: list[tuple[list[int], bool]] = []
    taker = threading.Thread(target=lambda: taken.append(mailbox.take(None)))
    taker.start()
    time.sleep(0.05)  # most likely it waits by now; the result is the same if not
    end(mailbox)
    taker.join(10)
    assert taken == [expected]
