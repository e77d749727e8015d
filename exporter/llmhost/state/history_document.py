"""The history as a document: one JSON object with its format and version, and when and by which llmhost it was written.

The version is raised by a change after which an older llmhost would misread the file or refuse it: a field that goes
away or means something else, a new value of an enum. A new field with a default is no such change. Both directions
are in json_codec.
"""

import json
from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from llmhost.model.history.history import History
from llmhost.model.history.unit_history import Start, UnitHistory
from llmhost.model.ids import UnitId
from llmhost.state.json_codec import DecodeError, EncodeCache, codec_of

FORMAT = "llmhost history"
VERSION = 1
MOST_BYTES = 16 << 20

T = TypeVar("T")

_HISTORY = codec_of(History)
_UNIT_HISTORY = codec_of(UnitHistory)
_START = codec_of(Start)


class NoHistoryError(ValueError):
    """The content is no history that we can read; str() is one line that says why."""


def history_of(content: bytes) -> History:
    """Read a document; raises NoHistoryError."""
    if not content:
        raise NoHistoryError("it is empty")
    try:
        document = json.loads(content.decode(), object_pairs_hook=_without_duplicates, parse_constant=_no_number)
    except DecodeError as error:
        raise NoHistoryError(str(error)) from error
    except RecursionError as error:
        raise NoHistoryError("it is nested too deeply") from error
    except ValueError as error:  # JSON's and UTF-8's own are
        raise NoHistoryError(f"it is no JSON: {error}") from error
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise NoHistoryError(f'it is JSON, but does not say "format": "{FORMAT}"')
    version = document.get("version")
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise NoHistoryError("it does not say of which version it is")
    if version > VERSION:
        raise NoHistoryError(f"it is of version {version}, from a newer llmhost; this one reads version {VERSION}")
    try:
        history = _HISTORY.decode(document.get("history"))
    except DecodeError as error:
        raise NoHistoryError(str(error.within("history"))) from error
    if not isinstance(history, History):
        raise TypeError
    return history


def document_of(history: History, *, saved_at: float, llmhost: str, cache: EncodeCache, most_bytes: int) -> bytes:
    """Write a document of at most so many bytes: the oldest starts are left out first, then units not seen for longest.

    TypeError or ValueError where the history has a value that cannot be encoded.
    """
    head = {"format": FORMAT, "version": VERSION, "llmhost": llmhost, "saved_at": saved_at}
    opening = json.dumps(head, allow_nan=False, separators=(",", ":"))[:-1] + ',"history":'
    text = _fitting(history, cache, most_bytes - len(opening) - len("}\n"))
    cache.drop_unused()
    return f"{opening}{text}}}\n".encode("ascii")


def encode_cache() -> EncodeCache:
    """Give a cache for writing one document after the other."""
    return EncodeCache(UnitHistory, Start)


def _fitting(history: History, cache: EncodeCache, most: int) -> str:
    text = _HISTORY.encode(history, cache)
    if len(text) <= most:
        return text
    rest = len(_HISTORY.encode(replace(history, units={}), cache))
    if rest > most // 2:  # processes and segments of this boot can be observed again
        kept = History(
            boot_id=history.boot_id,
            units=history.units,
            gpu_sets=history.gpu_sets,
            readiness=history.readiness,
            last_servers=history.last_servers,
            gpus=history.gpus,
        )
        history, text = kept, _HISTORY.encode(kept, cache)
    for without in (_without_starts, _without_units):
        while (excess := len(text) - most) > 0:
            less = without(history, excess, cache)
            if less is history:
                break
            history, text = less, _HISTORY.encode(less, cache)
    if len(text) > most:
        raise ValueError(f"it comes to {len(text)} bytes, and there is nothing left to leave out")
    return text


def _without_starts(history: History, excess: int, cache: EncodeCache) -> History:
    """Leave out the oldest starts of all, but the latest of no unit: it may be under way."""
    oldest = sorted(
        ((start.at, unit, start) for unit, unit_history in history.units.items() for start in unit_history.starts[:-1]),
        key=lambda found: found[0],
    )
    fewer: dict[UnitId, int] = {}
    for _, unit, _start in _as_many_as_needed(oldest, excess, lambda found: len(_START.encode(found[2], cache)) + 1):
        fewer[unit] = fewer.get(unit, 0) + 1
    if not fewer:
        return history
    units = {
        unit: replace(unit_history, starts=unit_history.starts[fewer[unit] :]) if unit in fewer else unit_history
        for unit, unit_history in history.units.items()
    }
    return replace(history, units=units)


def _without_units(history: History, excess: int, cache: EncodeCache) -> History:
    """Leave out the units that were not seen for longest, with all that is kept of them."""
    longest = sorted(history.units.items(), key=lambda item: item[1].last_seen_at)
    dropped = {
        unit for unit, _ in _as_many_as_needed(longest, excess, lambda item: len(_UNIT_HISTORY.encode(item[1], cache)))
    }
    if not dropped:
        return history
    return replace(
        history,
        units={unit: kept for unit, kept in history.units.items() if unit not in dropped},
        gpu_sets={unit: gpus for unit, gpus in history.gpu_sets.items() if unit not in dropped},
        readiness={unit: readiness for unit, readiness in history.readiness.items() if unit not in dropped},
        last_servers={unit: last for unit, last in history.last_servers.items() if unit not in dropped},
    )


def _as_many_as_needed(items: list[T], excess: int, size_of: Callable[[T], int]) -> list[T]:
    chosen = []
    for item in items:
        if excess <= 0:
            break
        excess -= size_of(item)
        chosen.append(item)
    return chosen


def _without_duplicates(members: list[tuple[str, object]]) -> dict[str, object]:
    found = dict(members)
    if len(found) != len(members):
        names = [name for name, _ in members]
        duplicate = next(name for name in names if names.count(name) > 1)
        raise DecodeError(f"an object has the member {duplicate[:40]!r} twice")
    return found


def _no_number(constant: str) -> object:
    raise DecodeError(f"{constant} is no number of JSON's")
