"""Values of typed fields as JSON text and back: what is written can be read, and what does not fit is named."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NewType

import pytest

from llmhost.state.json_codec import DecodeError, EncodeCache, codec_of

Name = NewType("Name", str)


class Colour(StrEnum):
    RED = "red"
    BLUE = "blue"


@dataclass(frozen=True, slots=True)
class Key:
    number: int
    name: Name


@dataclass(frozen=True, slots=True, kw_only=True)
class Inner:
    at: float
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outer:
    inner: Inner
    flag: bool | None = None
    colours: tuple[Colour, ...] = ()
    pair: tuple[Colour, int] | None = None
    names: frozenset[Name] = frozenset()
    by_key: Mapping[Key, Inner] = field(default_factory=dict)
    by_name: Mapping[Name, float | None] = field(default_factory=dict)
    seen_total: Mapping[Colour, int] = field(default_factory=dict)
    offset: int = 0


RICH = Outer(
    inner=Inner(at=0.1, note='"\\\n\x00€\udcff'),
    flag=False,
    colours=(Colour.RED, Colour.RED),
    pair=(Colour.BLUE, -3),
    names=frozenset({Name("a")}),
    by_key={Key(1, Name("x")): Inner(at=1e-300), Key(2, Name("x")): Inner(at=-1.5)},
    by_name={Name(""): None, Name("b"): 2.0},
    seen_total={Colour.RED: 18446744073709551615},
    offset=-7,
)
# json.dumps(…, separators=(",", ":")) of what the module says that a value looks like
RICH_TEXT = (
    '{"inner":{"at":0.1,"note":"\\"\\\\\\n\\u0000\\u20ac\\udcff"},"flag":false,"colours":["red","red"],'
    '"pair":["blue",-3],"names":["a"],"by_key":[[{"number":1,"name":"x"},{"at":1e-300,"note":""}],'
    '[{"number":2,"name":"x"},{"at":-1.5,"note":""}]],"by_name":{"":null,"b":2.0},'
    '"seen_total":{"red":18446744073709551615},"offset":-7}'
)


def read(text: str) -> object:
    return codec_of(Outer).decode(json.loads(text))


def test_a_value_is_written_as_the_module_says() -> None:
    assert codec_of(Outer).encode(RICH, EncodeCache()) == RICH_TEXT


def test_what_is_written_is_read_as_the_same_value() -> None:
    assert read(RICH_TEXT) == RICH


def test_a_field_that_is_not_there_takes_its_default_and_an_unknown_one_is_left_out() -> None:
    assert read('{"inner":{"at":1,"of_a_newer_llmhost":[{}]}}') == Outer(inner=Inner(at=1.0))


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("[]", "is a list, not an object"),
        ("{}", "inner: is missing"),
        ('{"inner":{}}', "inner.at: is missing"),
        ('{"inner":{"at":"1"}}', "inner.at: is text, not a number"),
        ('{"inner":{"at":true}}', "inner.at: is true or false, not a number"),
        ('{"inner":{"at":null}}', "inner.at: is null, not a number"),
        ('{"inner":{"at":1e999}}', "inner.at: is a number too large to be true"),
        ('{"inner":{"at":NaN}}', "inner.at: is a number too large to be true"),  # the document refuses it earlier
        ('{"inner":{"at":1,"note":7}}', "inner.note: is a number, not text"),
        ('{"inner":{"at":1},"flag":1}', "flag: is a number, not true or false"),
        ('{"inner":{"at":1},"offset":1.5}', "offset: is a number, not a whole number"),
        ('{"inner":{"at":1},"offset":18446744073709551616}', "offset: is a number too large to be true"),
        ('{"inner":{"at":1},"colours":"red"}', "colours: is text, not a list"),
        ('{"inner":{"at":1},"colours":["red","green"]}', "colours[1]: is 'green', not one of red, blue"),
        ('{"inner":{"at":1},"pair":["red"]}', "pair: has 1 items, not 2"),
        ('{"inner":{"at":1},"pair":["red","x"]}', "pair[1]: is text, not a whole number"),
        ('{"inner":{"at":1},"by_key":{}}', "by_key: is an object, not a list"),
        ('{"inner":{"at":1},"by_key":[[{"number":1},{}]]}', "by_key[0][0].name: is missing"),
        ('{"inner":{"at":1},"by_key":[[{"number":1,"name":"x"},{"at":""}]]}', "by_key[0][1].at: is text, not a number"),
        (
            '{"inner":{"at":1},"by_key":[[{"number":1,"name":"x"},{"at":1}],[{"number":1,"name":"x"},{"at":2}]]}',
            "by_key[1][0]: is there a second time",
        ),
        ('{"inner":{"at":1},"by_name":[]}', "by_name: is a list, not an object"),
        ('{"inner":{"at":1},"by_name":{"a\\nb":""}}', r"by_name['a\nb']: is text, not a number"),
        ('{"inner":{"at":1},"seen_total":{"red":-1}}', "seen_total['red']: is below 0"),
        ('{"inner":{"at":1},"seen_total":{"green":1}}', "seen_total['green']: is 'green', not one of red, blue"),
    ],
)
def test_what_does_not_fit_is_refused_with_its_place(text: str, complaint: str) -> None:
    with pytest.raises(DecodeError) as refused:
        read(text)
    assert str(refused.value) == complaint


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_is_none_is_not_written(number: float) -> None:
    with pytest.raises(ValueError, match="no finite number"):
        codec_of(Inner).encode(Inner(at=number), EncodeCache())


@pytest.mark.parametrize("hint", [object, int | str, list[int], bytes])
def test_a_type_without_a_codec_is_refused_when_the_codec_is_made(hint: object) -> None:
    with pytest.raises(TypeError, match="has no form in JSON"):
        codec_of(hint)


def test_an_object_that_was_written_before_is_not_put_in_words_again() -> None:
    cache = EncodeCache(Inner)
    first, second = Inner(at=1.0, note="one"), Inner(at=2.0)
    codec = codec_of(tuple[Inner, ...])
    assert codec.encode((first, second), cache) == '[{"at":1.0,"note":"one"},{"at":2.0,"note":""}]'
    object.__setattr__(first, "note", "nobody does this to a frozen one")
    cache.drop_unused()
    assert codec.encode((first, Inner(at=3.0)), cache) == '[{"at":1.0,"note":"one"},{"at":3.0,"note":""}]'
    cache.drop_unused()
    codec.encode((), cache)
    cache.drop_unused()  # and what was not in the last writing is
    assert codec.encode((first,), cache) == '[{"at":1.0,"note":"nobody does this to a frozen one"}]'
