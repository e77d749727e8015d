"""A history of units, written down in a host.yml: the key `history` (tests/hosts/README.md)."""

from collections.abc import Iterator, Mapping
from typing import Any

from tests.fakes.procfs import BOOT_ID
from tests.fakes.values import MIB

from llmhost.model.history.history import History
from llmhost.model.history.unit_history import End, InTheWay, Short, Start, Trigger, UnitHistory, Verdict
from llmhost.model.ids import GpuUuid, UnitId

_AS_WRITTEN = frozenset(
    {
        "invocation_id",
        "nrestarts",
        "stopped",
        "failures_total",
        "unexpected_stops_total",
        "state_seconds",
        "last_start_at",
        "last_resident_start_at",
        "last_failure_at",
        "last_release_seconds",
    }
)


def history_of(history: Mapping[str, Mapping[str, Any]]) -> History:
    return History(boot_id=BOOT_ID, units={UnitId(name): _record(name, written) for name, written in history.items()})


def _record(name: str, written: Mapping[str, Any]) -> UnitHistory:
    unknown = written.keys() - _AS_WRITTEN - {"starts", "starts_total"}
    assert not unknown, f"history of {name}: unknown keys {unknown}"
    return UnitHistory(
        last_seen_at=0.0,
        starts=tuple(_start(**start) for start in written.get("starts", [])),
        starts_total={
            (Trigger(trigger), Verdict(verdict)): count
            for trigger, by_verdict in written.get("starts_total", {}).items()
            for verdict, count in by_verdict.items()
        },
        **{key: value for key, value in written.items() if key in _AS_WRITTEN},
    )


def _start(
    *,
    at: float,
    trigger: str,
    verdict: str = "",
    ended: Mapping[str, Any] | None = None,
    in_the_way: Mapping[int, Mapping[str, int]] | None = None,
    short: Mapping[int, int] | None = None,
    invocation_id: str = "",
    attempt: int = 1,
) -> Start:
    return Start(
        invocation_id=invocation_id,
        trigger=Trigger(trigger),
        attempt=attempt,
        at=at,
        began_monotonic=0.0,
        main_monotonic=None if verdict in ("", "not_started") else 0.0,
        verdict=Verdict(verdict) if verdict else None,
        in_the_way=tuple(_in_the_way(in_the_way or {})),
        short=tuple(
            Short(uuid=_uuid(index), gpu=str(index), short_bytes=mib * MIB) for index, mib in (short or {}).items()
        ),
        end=None if ended is None else _end(at, **ended),
    )


def _end(began_at: float, *, at: float, result: str) -> End:
    return End(at=at, result=result, exec_main_status=None, asked=False, seconds=at - began_at)


def _in_the_way(found: Mapping[int, Mapping[str, int]]) -> Iterator[InTheWay]:
    """GPUs by index, with the identity that the fake driver gives them; MiB by kind."""
    for index, by_kind in found.items():
        for kind, mib in by_kind.items():
            yield InTheWay(uuid=_uuid(index), gpu=str(index), kind=kind, used_bytes=mib * MIB)


def _uuid(index: int) -> GpuUuid:
    return GpuUuid(f"GPU-fa4e{index:04x}-0000-4000-8000-{index:012x}")
