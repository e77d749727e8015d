"""Usage trends: since when the memory in use on each GPU stands still, and how fast it falls. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.model.ids import GpuUuid

STILL_BYTES = 16 << 20  # what is in use may move by that much and stand still
_RATE_SECONDS = 2.0  # how far back a rate looks


@dataclass(frozen=True, slots=True, kw_only=True)
class UsageTrend:
    """The memory in use on one GPU over time. Times are on one monotonic clock."""

    since: float  # from when on it has moved by no more than STILL_BYTES
    least_bytes: int  # since then
    most_bytes: int
    samples: tuple[tuple[float, int], ...]  # the last seconds: when, bytes

    @property
    def falling_bytes_per_second(self) -> float:
        """Below 0 where it rises; 0 where it is not known."""
        (first_at, first), (last_at, last) = self.samples[0], self.samples[-1]
        return (first - last) / (last_at - first_at) if last_at > first_at else 0.0


UsageTrends = Mapping[GpuUuid, UsageTrend]


def advance(trends: UsageTrends, used_bytes: Mapping[GpuUuid, int], at: float) -> UsageTrends:
    """Take in what is in use now. What was not read now stands still only from its next reading on."""
    return {uuid: _advanced(trends.get(uuid), used, at) for uuid, used in used_bytes.items()}


def _advanced(trend: UsageTrend | None, used: int, at: float) -> UsageTrend:
    if trend is None:
        return UsageTrend(since=at, least_bytes=used, most_bytes=used, samples=((at, used),))
    samples = (*(sample for sample in trend.samples if at - sample[0] <= _RATE_SECONDS), (at, used))
    least, most = min(trend.least_bytes, used), max(trend.most_bytes, used)
    if most - least > STILL_BYTES:
        return UsageTrend(since=at, least_bytes=used, most_bytes=used, samples=samples)
    return UsageTrend(since=trend.since, least_bytes=least, most_bytes=most, samples=samples)
