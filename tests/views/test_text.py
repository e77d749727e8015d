"""Lines for a terminal: cut, folded, and nothing in them that a terminal would obey."""

import pytest

from llmhost.views.text import Style, columns, count, cut, folded, gib, padded, plain, ranges, rendered, size, span


@pytest.mark.parametrize(
    ("text", "width", "shown"),
    [
        ("vllm.service", 12, "vllm.service"),
        ("vllm.service", 11, "vllm.servi…"),
        ("vllm.service", 1, "…"),
        ("vllm.service", 0, ""),
        ("模型模型", 8, "模型模型"),  # two columns each
        ("模型模型", 7, "模型模…"),
        ("模型模型", 6, "模型…"),
        ("e\u0301e\u0301", 2, "e\u0301e\u0301"),  # a combining accent takes none
        ("a\x1b[31mb", 9, "a?[31mb"),
        ("a\nb\tc\x07", 9, "a?b?c?"),
        ("\u202egnp", 9, "?gnp"),  # turns the direction of writing
        ("\udcff", 9, "?"),  # a byte that is no UTF-8
    ],
)
def test_text_is_cut_to_its_columns_and_cleaned(text: str, width: int, shown: str) -> None:
    assert cut(text, width) == shown
    assert columns(cut(text, width)) <= width


def test_padding_counts_columns() -> None:
    assert padded("模型", 6) == "模型  "
    assert padded("模型模型", 6) == "模型… "


def test_prose_is_folded_between_words_and_a_long_word_is_cut() -> None:
    lines = folded("one two three " + "x" * 20, width=12, first=plain("- "), indent="  ")
    assert rendered(lines, width=12, colour=False).splitlines() == ["- one two", "  three", "  xxxxxxxxx…"]


def test_a_line_is_cut_where_its_pieces_together_are_too_wide() -> None:
    line = (("held ", Style.PLAIN), ("vllm.service", Style.BAD), (" and more", Style.PLAIN))
    assert rendered([line], width=80, colour=False) == "held vllm.service and more\n"
    assert rendered([line], width=17, colour=False) == "held vllm.servic…\n"
    assert rendered([line], width=10, colour=False) == "held vllm…\n"
    assert rendered([line], width=10, colour=True) == "held \x1b[31mvllm…\x1b[0m\n"


def test_numbers_are_short() -> None:
    assert [gib(count << 20) for count in (0, 1, 60, 102, 3350)] == ["0.0", "<0.1", "0.1", "0.1", "3.3"]
    sizes = [size(value) for value in (0, 512, 1 << 20, 15 << 30, 3 << 40)]
    assert sizes == ["0 B", "512 B", "1.0 MiB", "15 GiB", "3.0 TiB"]
    spans = [span(value) for value in (-1, 0.42, 34, 119.9, 121, 7199, 7201, 200_000)]
    assert spans == ["0.0 s", "0.4 s", "34 s", "120 s", "2 min", "120 min", "2 h", "2 d"]
    assert [count(1, "start"), count(2, "start"), count(2, "process", "processes")] == [
        "1 start",
        "2 starts",
        "2 processes",
    ]


def test_gpus_are_named_by_ranges() -> None:
    assert ranges(["3", "0", "1", "2", "5", "10", "11"]) == "0-3, 5, 10, 11"
    assert ranges(["0:3", "0:0", "1"]) == "0:0, 0:3, 1"
    assert ranges([]) == ""
