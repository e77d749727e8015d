"""What a PromQL expression of a dashboard asks for, and which labels its answer has, read from its text."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

_TEXT = r'"(?:[^"\\]|\\.)*"'
_GROUPING = re.compile(r"\b(by|without|on|ignoring|group_left|group_right)\s*\(([^)]*)\)")
_KEYWORDS = frozenset(
    {"and", "or", "unless", "offset", "bool", "inf", "nan", "Inf", "NaN", "group_left", "group_right"}
)
_AGGREGATIONS = frozenset({"sum", "min", "max", "avg", "count", "group", "stddev", "quantile"})
# A text by itself, or a selector: its name, its matchers, or both, and its range.
_READ = re.compile(
    rf"{_TEXT}"
    r"|(?P<name>(?<![\w:.$])[a-zA-Z_:][\w:]*)(?P<call>\s*\()?"
    rf"(?:\s*\{{(?P<matchers>(?:[^{{}}\"]|{_TEXT})*)\}})?(?:\s*\[(?P<range>[^\]]*)\])?"
)
_JOINING = re.compile(r"\b(?:on|ignoring|group_left|group_right)\s*\([^)]*\)")
_OPENS = re.compile(r"(?P<name>\b[a-zA-Z_]\w*)?\s*(?:\bby\s*\((?P<by>[^)]*)\)\s*)?\(")
_BY = re.compile(r"\s*by\s*\((?P<labels>[^)]*)\)")
_MATCHER = re.compile(rf"(\w+)\s*(=~|!~|!=|=)\s*({_TEXT})")
_CALLED = re.compile(r"(\w+)\s*\(\s*$")


@dataclass(frozen=True)
class Selector:
    name: str
    matchers: Mapping[str, tuple[str, str]]  # label → operator, text
    range: str = ""
    function: str = ""  # that it is the whole, or first, argument of


def _without_groupings(expr: str) -> str:
    return _GROUPING.sub(lambda match: " " * len(match[0]), expr)


def selectors(expr: str) -> Iterator[Selector]:
    bare = _without_groupings(expr)
    for match in _READ.finditer(bare):
        name = match["name"]
        if not name or match["call"] or name in _KEYWORDS:
            continue
        matchers = {label: (sign, text[1:-1]) for label, sign, text in _MATCHER.findall(match["matchers"] or "")}
        called = _CALLED.search(bare[: match.start()])
        yield Selector(name, matchers, match["range"] or "", called[1] if called else "")


def kept(expr: str) -> list[frozenset[str]]:
    """Give the labels of its answer: of each part joined by `or`, those that its outermost aggregation keeps.

    Nothing where nothing is aggregated: the answer then has all labels of what is asked for.
    """
    made = frozenset(re.findall(r'label_replace\(.*?, "(\w+)", ', expr))
    return [one | made for one in _kept(_JOINING.sub(_blank, re.sub(rf"{_TEXT}|\[[^\]]*\]", _blank, expr)))]


def _blank(match: re.Match[str]) -> str:
    return " " * len(match[0])


def _kept(expr: str) -> list[frozenset[str]]:
    alternatives = _split(expr, "or")
    if len(alternatives) > 1:
        return [one for part in alternatives for one in _kept(part)]
    left = _split(expr, "and|unless")[0]
    place = 0
    while opens := _OPENS.search(left, place):
        place = _closing(left, opens.end())
        if opens["name"] in _AGGREGATIONS:
            by = opens["by"] or _BY.match(left, place)
            return [frozenset(re.findall(r"\w+", (by if isinstance(by, str) else by["labels"]) if by else ""))]
        if found := _kept(left[opens.end() : place - 1]):
            return found
    return []


def _split(expr: str, words: str) -> list[str]:
    """Cut at these words where no parenthesis is open."""
    cuts = [
        match
        for match in re.finditer(rf"\b(?:{words})\b", expr)
        if expr.count("(", 0, match.start()) == expr.count(")", 0, match.start())
    ]
    starts, ends = [0, *(cut.end() for cut in cuts)], [*(cut.start() for cut in cuts), len(expr)]
    return [expr[start:end] for start, end in zip(starts, ends, strict=True)]


def _closing(expr: str, place: int) -> int:
    """Give the place behind the parenthesis that closes the one before this place."""
    depth = 1
    while depth and place < len(expr):
        depth += {"(": 1, ")": -1}.get(expr[place], 0)
        place += 1
    return place


def counters_out_of_place(expr: str) -> list[str]:
    """Give the counters that stand neither in a rate, nor are counted exactly.

    That is `c - min_over_time(c[w])`, and, over each step of a drawing, `c < b or c - b`, where b was before:
    `(c offset w or min_over_time(c[w]))`, with 0 between the two where its host was seen before; of the same series and
    window throughout.
    """
    series = rf"(\w+_total(?:\{{(?:[^{{}}\"]|{_TEXT})*\}})?)"
    window = r"([\w$]+)"
    left = re.sub(rf"\b(?:rate|increase)\({series}\[[\w$]+\]\)", "", expr)
    from_0 = r"(?:0 \* \1 and on \([\w, ]+\) llmhost_build_info\{[^}]*\} offset \3 or )?"
    before = rf"\(\1 offset {window} or {from_0}min_over_time\(\1\[\3\]\)\)"
    left = re.sub(rf"{series} < (?P<before>{before}) or \1 - (?P=before)", "", left)
    left = re.sub(rf"{series} - min_over_time\(\1\[{window}\]\)", "", left)
    return [one.name for one in selectors(left) if one.name.endswith("_total")]
