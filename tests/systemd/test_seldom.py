"""How often a line of one kind is logged."""

from llmhost.sources.systemd.seldom import Seldom


def test_a_line_of_one_kind_is_due_once_a_minute() -> None:
    now = [5.0]
    seldom = Seldom(clock=lambda: now[0])
    assert [seldom.due("a"), seldom.due("a"), seldom.due("b")] == [True, False, True]
    now[0] += 59.9
    assert not seldom.due("a")
    now[0] += 0.2
    assert [seldom.due("a"), seldom.due("a")] == [True, False]
