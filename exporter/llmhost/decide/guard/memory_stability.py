"""For how long the memory in use on each GPU has stood still, and how fast it falls. Pure."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.model.ids import GpuUuid

STEADY_BYTES = 16 << 20  # what is in use may move by that much and stand still
_RATE_SECONDS = 2.0  # how far back a rate looks


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """Memory in use on one GPU. Times are on one monotonic clock."""

    since: float  # from when on it has moved by no more than STEADY_BYTES
    least_bytes: int  # since then
    most_bytes: int
    samples: tuple[tuple[float, int], ...]  # the last seconds: when, bytes

    @property
    def falling_bytes_per_second(self) -> float:
        """Below 0 where it rises; 0 where it is not known."""
        (first_at, first), (last_at, last) = self.samples[0], self.samples[-1]
        return (first - last) / (last_at - first_at) if last_at > first_at else 0.0


Traces = Mapping[GpuUuid, Trace]


def advance(traces: Traces, used_bytes: Mapping[GpuUuid, int], at: float) -> Traces:
    """Take in what is in use now. What was not read now stands still only from its next reading on."""
    return {uuid: _advanced(traces.get(uuid), used, at) for uuid, used in used_bytes.items()}


def _advanced(trace: Trace | None, used: int, at: float) -> Trace:
    if trace is None:
        return Trace(since=at, least_bytes=used, most_bytes=used, samples=((at, used),))
    samples = (*(sample for sample in trace.samples if at - sample[0] <= _RATE_SECONDS), (at, used))
    least, most = min(trace.least_bytes, used), max(trace.most_bytes, used)
    if most - least > STEADY_BYTES:
        return Trace(since=at, least_bytes=used, most_bytes=used, samples=samples)
    return Trace(since=trace.since, least_bytes=least, most_bytes=most, samples=samples)
