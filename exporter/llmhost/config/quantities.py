"""Sizes and times as people write them: "1000MiB", "30s". Inside, bytes and seconds.

Times are spelt as Prometheus spells durations ("1h30m", "500ms"), sizes with the binary units that vLLM and nvidia-smi
print ("85GiB"). A number without a unit is refused: 30 could be seconds, minutes or MiB.
"""

import re
from decimal import Decimal
from typing import Final

SIZE_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
TIME_UNITS: Final = {"d": Decimal(86400), "h": Decimal(3600), "m": Decimal(60), "s": Decimal(1), "ms": Decimal("0.001")}
LONGEST_TEXT: Final = 40  # more digits than any quantity here has; also bounds the arithmetic

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_WITH_UNIT = re.compile(rf"({_NUMBER}) ?([A-Za-z]+)")
_TIME_PART = re.compile(rf"({_NUMBER})(ms|[smhd])")
_TIME = re.compile(rf"(?:{_TIME_PART.pattern})+")
# The spellings that mean a unit, in any case: "GB", "minutes"
_SIZE_WORDS = {f"{prefix}iB": f"{prefix}i?b?" for prefix in "KMGT"}
_TIME_WORDS = {"ms": "m(illi)?s.*|milli", "s": "s|sec.*", "m": "m|min.*", "h": "h|hrs?|hour.*", "d": "d|days?"}


class QuantityError(ValueError):
    """The text is no such quantity; str() says why in one line, with what was probably meant."""


def parse_size(text: str) -> int:
    """Give the bytes of "85GiB", "1000 MiB" or "85.48GiB" (rounded to the nearest byte).

    Raises QuantityError: no unit, a decimal unit (GB), a negative number, or no size at all.
    """
    match = _WITH_UNIT.fullmatch(text)
    if match and match[2] in SIZE_UNITS and len(text) <= LONGEST_TEXT:
        return round(Decimal(match[1]) * SIZE_UNITS[match[2]])
    raise _error(text, "size", "B, KiB, MiB, GiB or TiB", _SIZE_WORDS, example="1000MiB")


def format_size(size_bytes: int) -> str:
    """Give the shortest spelling that parse_size reads back to exactly this."""
    unit = max((u for u in SIZE_UNITS if size_bytes % SIZE_UNITS[u] == 0), key=SIZE_UNITS.__getitem__)
    return f"{size_bytes // SIZE_UNITS[unit]}{unit}" if size_bytes else "0B"


def parse_time(text: str) -> float:
    """Give the seconds of "30s", "2m", "1h30m" or "500ms".

    Raises QuantityError: no unit, an unknown one, a negative number, or no time at all.
    """
    if len(text) > LONGEST_TEXT or not _TIME.fullmatch(text):
        raise _error(text, "time", "ms, s, m, h or d", _TIME_WORDS, example="30s")
    parts = _TIME_PART.findall(text)
    units = [TIME_UNITS[unit] for _, unit in parts]
    if units != sorted(set(units), reverse=True):
        raise QuantityError("each unit at most once, the largest first, such as 1h30m")
    return float(sum(Decimal(number) * TIME_UNITS[unit] for number, unit in parts))


def format_time(seconds: float) -> str:
    """Give a spelling that parse_time reads back to exactly this."""
    exact = Decimal(repr(seconds))
    for unit, unit_seconds in TIME_UNITS.items():
        count = exact / unit_seconds
        if exact and count == count.to_integral_value():
            return f"{int(count)}{unit}"
    return f"{exact.normalize():f}s"


def _error(text: str, noun: str, units: str, words: dict[str, str], *, example: str) -> QuantityError:
    if len(text) > LONGEST_TEXT:
        return QuantityError(f"not a {noun}: too many digits")
    if re.fullmatch(r"-.*[0-9].*", text):
        return QuantityError(f"a {noun} cannot be negative")
    if re.fullmatch(_NUMBER, text):
        usual = example.lstrip("0123456789")
        return QuantityError(f'a {noun} needs a unit ({units}); did you mean "{text}{usual}"?')
    if match := _WITH_UNIT.fullmatch(text):
        for unit, spellings in words.items():
            if re.fullmatch(spellings, match[2], re.IGNORECASE):
                return QuantityError(f'{noun}s are in {units}; did you mean "{match[1]}{unit}"?')
    return QuantityError(f'not a {noun}, such as "{example}"; units are {units}')
