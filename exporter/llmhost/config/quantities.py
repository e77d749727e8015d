"""Sizes and times as people write them: "1000MiB", "30s". Inside, bytes and seconds.

Times are spelt as Prometheus spells durations ("1h30m", "500ms"), sizes with the binary units that vLLM and nvidia-smi
print ("85GiB"). A number without a unit is refused: 30 could be seconds, minutes or MiB.
"""

import re
from decimal import Decimal
from typing import Final

SIZE_UNITS: Final = {"B": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30, "TiB": 1 << 40}
TIME_UNITS: Final = {
    "ms": Decimal("0.001"),
    "s": Decimal(1),
    "m": Decimal(60),
    "h": Decimal(3600),
    "d": Decimal(86400),
}
LONGEST_TEXT: Final = 40  # more digits than any quantity here has; also bounds the arithmetic

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_SIZE = re.compile(rf"({_NUMBER}) ?([A-Za-z]+)")
_TIME = re.compile(rf"(?:{_NUMBER}(?:ms|[smhd]))+")
_TIME_PART = re.compile(rf"({_NUMBER})(ms|[smhd])")
_WORDY_TIME = re.compile(rf"({_NUMBER}) ?([A-Za-z]+)")
_SIZE_LIKE = {"k": "KiB", "m": "MiB", "g": "GiB", "t": "TiB"}
_TIME_LIKE = {  # by the word in lower case without a plural's "s"
    **dict.fromkeys(("msec", "milli", "millisecond"), "ms"),
    **dict.fromkeys(("s", "sec", "second"), "s"),
    **dict.fromkeys(("m", "min", "minute"), "m"),
    **dict.fromkeys(("h", "hr", "hour"), "h"),
    **dict.fromkeys(("d", "day"), "d"),
}


class QuantityError(ValueError):
    """The text is no such quantity; str() says why in one line, with what was probably meant."""


def parse_size(text: str) -> int:
    """Give the bytes of "85GiB", "1000 MiB" or "85.48GiB" (rounded to the nearest byte).

    Raises QuantityError: no unit, a decimal unit (GB), a negative number, or no size at all.
    """
    match = _SIZE.fullmatch(text)
    if match and match[2] in SIZE_UNITS and len(text) <= LONGEST_TEXT:
        return round(Decimal(match[1]) * SIZE_UNITS[match[2]])
    raise QuantityError(_size_complaint(text))


def format_size(size_bytes: int) -> str:
    """Give the shortest spelling that parse_size reads back to exactly this."""
    unit = max((u for u in SIZE_UNITS if size_bytes % SIZE_UNITS[u] == 0), key=SIZE_UNITS.__getitem__)
    return f"{size_bytes // SIZE_UNITS[unit]}{unit}" if size_bytes else "0B"


def parse_time(text: str) -> float:
    """Give the seconds of "30s", "2m", "1h30m" or "500ms".

    Raises QuantityError: no unit, an unknown one, a negative number, or no time at all.
    """
    if len(text) > LONGEST_TEXT or not _TIME.fullmatch(text):
        raise QuantityError(_time_complaint(text))
    parts = _TIME_PART.findall(text)
    units = [TIME_UNITS[unit] for _, unit in parts]
    if units != sorted(set(units), reverse=True):
        raise QuantityError("each unit at most once, the largest first, such as 1h30m")
    return float(sum(Decimal(number) * TIME_UNITS[unit] for number, unit in parts))


def format_time(seconds: float) -> str:
    """Give a spelling that parse_time reads back to exactly this."""
    exact = Decimal(repr(seconds))
    for unit in ("d", "h", "m", "s", "ms"):
        count = exact / TIME_UNITS[unit]
        if exact and count == count.to_integral_value():
            return f"{int(count)}{unit}"
    return f"{exact.normalize():f}s"


def _size_complaint(text: str) -> str:
    units = "B, KiB, MiB, GiB or TiB"
    if len(text) > LONGEST_TEXT:
        return "not a size: too many digits"
    if re.fullmatch(r"-.*[0-9].*", text):
        return "a size cannot be negative"
    if re.fullmatch(_NUMBER, text):
        return f'a size needs a unit ({units}); did you mean "{text}MiB"?'
    match = _SIZE.fullmatch(text)
    prefix = re.fullmatch(r"([kmgt]?)i?b?", match[2].lower()) if match else None
    if match and prefix and prefix[1]:
        return f'sizes are in {units}; did you mean "{match[1]}{_SIZE_LIKE[prefix[1]]}"?'
    return f'not a size, such as "1000MiB"; units are {units}'


def _time_complaint(text: str) -> str:
    units = "ms, s, m, h or d"
    if len(text) > LONGEST_TEXT:
        return "not a time: too many digits"
    if re.fullmatch(r"-.*[0-9].*", text):
        return "a time cannot be negative"
    if re.fullmatch(_NUMBER, text):
        return f'a time needs a unit ({units}); did you mean "{text}s"?'
    match = _WORDY_TIME.fullmatch(text)
    unit = _TIME_LIKE.get(match[2].lower().removesuffix("s") or "s") if match else None
    if match and unit:
        return f'times are in {units}; did you mean "{match[1]}{unit}"?'
    return f'not a time, such as "30s" or "1h30m"; units are {units}'
