"""The history as a document: one JSON object that says what it is, of which version, and by whom and when written.

The version is raised by a change after which an older llmhost would misread the file or refuse it: a field that goes
away or means something else, a new value of an enum. A new field with a default is no such change. Both directions
are in forms.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from llmhost.model.history.history import History
from llmhost.model.history.unit_history import Start, UnitHistory
from llmhost.model.ids import UnitId
from llmhost.state.encode_cache import Written
from llmhost.state.json_codec import WrongFormError, form_of

FORMAT = "llmhost history"
VERSION = 1
MOST_BYTES = 16 << 20

T = TypeVar("T")

_HISTORY = form_of(History)
_RECORD = form_of(UnitHistory)
_START = form_of(Start)


class UnfitError(ValueError):
    """This is no history that we can read; str() is one line that says why."""


def history_of(content: bytes) -> History:
    """Read a document; raises UnfitError."""
    if not content:
        raise UnfitError("it is empty")
    try:
        document = json.loads(content.decode(), object_pairs_hook=_without_doubles, parse_constant=_no_number)
    except WrongFormError as error:
        raise UnfitError(str(error)) from error
    except RecursionError as error:
        raise UnfitError("it is nested too deeply") from error
    except ValueError as error:  # JSON's and UTF-8's own are
        raise UnfitError(f"it is no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise UnfitError(f'it is JSON, but does not say "format": "{FORMAT}"')
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise UnfitError("it does not say of which version it is")
    if version > VERSION:
        raise UnfitError(f"it is of version {version}, from a newer llmhost; this one reads version {VERSION}")
    try:
        history = _HISTORY.value(document.get("history"))
    except WrongFormError as error:
        raise UnfitError(str(error.within("history"))) from error
    if not isinstance(history, History):
        raise TypeError
    return history


def document_of(history: History, *, saved_at: float, llmhost: str, written: Written, most_bytes: int) -> bytes:
    """Write a document of at most so many bytes: the oldest starts are left out first, then units unseen for longest.

    TypeError or ValueError where the history has something in it that has no form.
    """
    head = {"format": FORMAT, "version": VERSION, "llmhost": llmhost, "saved_at": saved_at}
    opening = json.dumps(head, allow_nan=False, separators=(",", ":"))[:-1] + ',"history":'
    text = _fitting(history, written, most_bytes - len(opening) - len("}\n"))
    written.forget_unused()
    return f"{opening}{text}}}\n".encode("ascii")


def words() -> Written:
    """Texts that are remembered from one document to the next."""
    return Written(UnitHistory, Start)


def _fitting(history: History, written: Written, most: int) -> str:
    text = _HISTORY.text(history, written)
    if len(text) <= most:
        return text
    rest = len(_HISTORY.text(replace(history, units={}), written))
    if rest > most // 2:  # what was seen of processes and files in this boot can be seen again
        kept = History(
            boot_id=history.boot_id, units=history.units, gpu_sets=history.gpu_sets, readiness=history.readiness
        )
        history, text = kept, _HISTORY.text(kept, written)
    for without in (_without_starts, _without_units):
        while (excess := len(text) - most) > 0:
            less = without(history, excess, written)
            if less is history:
                break
            history, text = less, _HISTORY.text(less, written)
    if len(text) > most:
        raise ValueError(f"it comes to {len(text)} bytes, and there is nothing left to leave out")
    return text


def _without_starts(history: History, excess: int, written: Written) -> History:
    """Leave out the oldest starts of all, but the latest of no unit: it may be under way."""
    oldest = sorted(
        ((start.at, unit, start) for unit, record in history.units.items() for start in record.starts[:-1]),
        key=lambda one: one[0],
    )
    fewer: dict[UnitId, int] = {}
    for _, unit, _start in _as_many_as_needed(oldest, excess, lambda one: len(_START.text(one[2], written)) + 1):
        fewer[unit] = fewer.get(unit, 0) + 1
    if not fewer:
        return history
    units = {
        unit: replace(record, starts=record.starts[fewer[unit] :]) if unit in fewer else record
        for unit, record in history.units.items()
    }
    return replace(history, units=units)


def _without_units(history: History, excess: int, written: Written) -> History:
    """Leave out the units that were not seen for longest, with all that is known of them."""
    longest = sorted(history.units.items(), key=lambda one: one[1].last_seen_at)
    gone = {unit for unit, _ in _as_many_as_needed(longest, excess, lambda one: len(_RECORD.text(one[1], written)))}
    if not gone:
        return history
    return replace(
        history,
        units={unit: one for unit, one in history.units.items() if unit not in gone},
        gpu_sets={unit: gpus for unit, gpus in history.gpu_sets.items() if unit not in gone},
        readiness={unit: readiness for unit, readiness in history.readiness.items() if unit not in gone},
    )


def _as_many_as_needed(items: list[T], excess: int, size_of: Callable[[T], int]) -> list[T]:
    chosen = []
    for item in items:
        if excess <= 0:
            break
        excess -= size_of(item)
        chosen.append(item)
    return chosen


def _without_doubles(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) != len(members):
        names = [name for name, _ in members]
        double = next(name for name in names if names.count(name) > 1)
        raise WrongFormError(f"an object has the member {double[:40]!r} twice")
    return found


def _no_number(constant: str) -> object:
    raise WrongFormError(f"{constant} is no number of JSON's")
