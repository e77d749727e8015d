"""Frozen dataclasses as JSON text and back, by the types of their fields.

A dataclass is an object, one member per field. A mapping is an object where its keys are text, else a list of
[key, value]. Tuples and frozen sets are lists, enums their values. Other types have no form: TypeError, when the form
is asked for.

Reading is strict in what is there, and open to time: a field that is not there takes its default (the file is from
before the field), one that nobody knows is left out (the file is from after it). Everything else that does not fit is
a WrongFormError, which names the place: wrong types, members twice, numbers that are none or cannot be, and numbers
below 0 where the name of the field says that they count (`_total`, `state_seconds`).
"""

import dataclasses
import math
import types
import typing
from collections.abc import Mapping
from enum import Enum
from functools import cache
from json.encoder import encode_basestring_ascii  # what json.dumps writes text with
from typing import Protocol

from llmhost.state.encode_cache import Written

_COUNTS = ("_total", "state_seconds")
_TOO_LARGE = 1 << 64  # inode numbers reach up to it


class WrongFormError(ValueError):
    """What was read is not of the form; str() names the place in the document and what is wrong there."""

    def __init__(self, what: str) -> None:
        super().__init__(what)
        self.what = what
        self.place = ""

    def within(self, step: str) -> "WrongFormError":
        self.place = step + self.place
        return self

    def __str__(self) -> str:
        return f"{self.place.removeprefix('.')}: {self.what}" if self.place else self.what


class Form(Protocol):
    def text(self, value: object, written: Written) -> str:
        """Give JSON text; TypeError or ValueError for what has none."""
        ...

    def value(self, read: object) -> object:
        """Turn what json.loads gave into a value; raises WrongFormError."""
        ...


class _Text:
    def text(self, value: object, _written: Written) -> str:
        if not isinstance(value, str):
            raise TypeError(f"{value!r} is no text")
        return encode_basestring_ascii(value)

    def value(self, read: object) -> object:
        if not isinstance(read, str):
            raise WrongFormError(f"is {_kind(read)}, not text")
        return read


class _Flag:
    def text(self, value: object, _written: Written) -> str:
        if not isinstance(value, bool):
            raise TypeError(f"{value!r} is neither true nor false")
        return "true" if value else "false"

    def value(self, read: object) -> object:
        if not isinstance(read, bool):
            raise WrongFormError(f"is {_kind(read)}, not true or false")
        return read


class _Number:
    def __init__(self, *, whole: bool, counts: bool) -> None:
        self._whole = whole
        self._counts = counts

    def text(self, value: object, _written: Written) -> str:
        if isinstance(value, float) and math.isfinite(value):
            return float.__repr__(value)
        if isinstance(value, int):
            return int.__repr__(value)
        raise ValueError(f"{value!r} is no finite number")

    def value(self, read: object) -> object:
        kinds = int if self._whole else int | float
        if isinstance(read, bool) or not isinstance(read, kinds):
            raise WrongFormError(f"is {_kind(read)}, not a {'whole ' if self._whole else ''}number")
        if not -_TOO_LARGE < read < _TOO_LARGE:
            raise WrongFormError("is a number too large to be true")
        if self._counts and read < 0:
            raise WrongFormError("is below 0")
        return read if self._whole else float(read)


class _OneOf:
    def __init__(self, kind: type[Enum]) -> None:
        self._texts = {one: encode_basestring_ascii(str(one.value)) for one in kind}
        self._values = {str(one.value): one for one in kind}

    def text(self, value: object, _written: Written) -> str:
        return self._texts[typing.cast("Enum", value)]

    def value(self, read: object) -> object:
        found = self._values.get(read) if isinstance(read, str) else None
        if found is None:
            shown = repr(read[:40]) if isinstance(read, str) else _kind(read)
            raise WrongFormError(f"is {shown}, not one of {', '.join(self._values)}")
        return found


class _OrNone:
    def __init__(self, form: Form) -> None:
        self._form = form

    def text(self, value: object, written: Written) -> str:
        return "null" if value is None else self._form.text(value, written)

    def value(self, read: object) -> object:
        return None if read is None else self._form.value(read)


class _Many:
    def __init__(self, make: type[tuple[object, ...]] | type[frozenset[object]], item: Form) -> None:
        self._make = make
        self._item = item

    def text(self, value: object, written: Written) -> str:
        items = typing.cast("tuple[object, ...]", value)
        return f"[{','.join([self._item.text(item, written) for item in items])}]"

    def value(self, read: object) -> object:
        return self._make(_each(_list(read), self._item))


class _Row:
    """A tuple of so many, each of its own type."""

    def __init__(self, items: tuple[Form, ...]) -> None:
        self._items = items

    def text(self, value: object, written: Written) -> str:
        pairs = zip(self._items, typing.cast("tuple[object, ...]", value), strict=True)
        return f"[{','.join([form.text(one, written) for form, one in pairs])}]"

    def value(self, read: object) -> object:
        listed = _list(read)
        if len(listed) != len(self._items):
            raise WrongFormError(f"has {len(listed)} items, not {len(self._items)}")
        return tuple(_at(f"[{index}]", form, listed[index]) for index, form in enumerate(self._items))


class _Object:
    """A mapping whose keys are text."""

    def __init__(self, key: Form, item: Form) -> None:
        self._key = key
        self._item = item

    def text(self, value: object, written: Written) -> str:
        items = typing.cast("Mapping[object, object]", value).items()
        members = [f"{self._key.text(key, written)}:{self._item.text(one, written)}" for key, one in items]
        return f"{{{','.join(members)}}}"

    def value(self, read: object) -> object:
        members = _members(read)
        return {
            _at(f"[{key[:40]!r}]", self._key, key): _at(f"[{key[:40]!r}]", self._item, one)
            for key, one in members.items()
        }


class _Pairs:
    """A mapping with keys of another kind."""

    def __init__(self, key: Form, item: Form) -> None:
        self._row = _Row((key, item))

    def text(self, value: object, written: Written) -> str:
        items = typing.cast("Mapping[object, object]", value).items()
        return f"[{','.join([self._row.text(pair, written) for pair in items])}]"

    def value(self, read: object) -> object:
        found: dict[object, object] = {}
        for index, pair in enumerate(_list(read)):
            key, one = typing.cast("tuple[object, object]", _at(f"[{index}]", self._row, pair))
            if key in found:
                raise WrongFormError("is there a second time").within(f"[{index}][0]")
            found[key] = one
        return found


class _Record:
    def __init__(self, kind: type) -> None:
        self._kind = kind
        hints = typing.get_type_hints(kind)
        fields = [field for field in dataclasses.fields(kind) if field.init]
        self._forms = {
            field.metadata.get("json", field.name): (
                field.name,
                form_of(hints[field.name], field.name.endswith(_COUNTS)),
            )
            for field in fields
        }
        self._heads = [(f'"{member}":', name, form) for member, (name, form) in self._forms.items()]
        self._needed = [
            field.metadata.get("json", field.name)
            for field in fields
            if field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING
        ]

    def text(self, value: object, written: Written) -> str:
        remembers = written.remembers(self._kind)
        if remembers and (known := written.text_of(value)) is not None:
            return known
        members = [head + form.text(getattr(value, name), written) for head, name, form in self._heads]
        text = f"{{{','.join(members)}}}"
        if remembers:
            written.remember(value, text)
        return text

    def value(self, read: object) -> object:
        members = _members(read)
        for member in self._needed:
            if member not in members:
                raise WrongFormError("is missing").within(f".{member}")
        found = {}
        for member, one in members.items():
            if member in self._forms:
                name, form = self._forms[member]
                found[name] = _at(f".{member}", form, one)
        return self._kind(**found)


@cache
def form_of(hint: object, counts: bool = False) -> Form:
    """Give the form of a type; `counts` where no number in it may be below 0. TypeError where it has none."""
    origin, arguments = typing.get_origin(hint), typing.get_args(hint)
    if isinstance(hint, typing.NewType):
        return form_of(hint.__supertype__, counts)
    if origin in (types.UnionType, typing.Union):
        others = [argument for argument in arguments if argument is not types.NoneType]
        if len(others) == 1:
            return _OrNone(form_of(others[0], counts))
    elif origin is tuple and arguments[1:] == (...,):
        return _Many(tuple, form_of(arguments[0], counts))
    elif origin is tuple:
        return _Row(tuple(form_of(argument, counts) for argument in arguments))
    elif origin is frozenset:
        return _Many(frozenset, form_of(arguments[0], counts))
    elif origin is Mapping:
        key, item = form_of(arguments[0]), form_of(arguments[1], counts)
        return _Object(key, item) if isinstance(key, _Text | _OneOf) else _Pairs(key, item)
    elif hint is str:
        return _Text()
    elif hint is bool:
        return _Flag()
    elif hint in (int, float):
        return _Number(whole=hint is int, counts=counts)
    elif isinstance(hint, type) and issubclass(hint, Enum):
        return _OneOf(hint)
    elif isinstance(hint, type) and dataclasses.is_dataclass(hint):
        return _Record(hint)
    raise TypeError(f"{hint} has no form in JSON here")


def _at(step: str, form: Form, read: object) -> object:
    try:
        return form.value(read)
    except WrongFormError as error:
        raise error.within(step)  # noqa: B904 - the same error, which knows more now


def _each(listed: list[object], form: Form) -> list[object]:
    return [_at(f"[{index}]", form, one) for index, one in enumerate(listed)]


def _list(read: object) -> list[object]:
    if not isinstance(read, list):
        raise WrongFormError(f"is {_kind(read)}, not a list")
    return read


def _members(read: object) -> dict[str, object]:
    if not isinstance(read, dict):
        raise WrongFormError(f"is {_kind(read)}, not an object")
    return read


def _kind(read: object) -> str:
    if read is None:
        return "null"
    names: Mapping[type, str] = {bool: "true or false", int: "a number", float: "a number", str: "text", list: "a list"}
    return names.get(type(read), "an object")
