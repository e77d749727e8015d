"""Days on which everything is as it should be, or no reason for an alert: none may fire on any of them.

What begins, begins an hour and a half into the day, so that an hour's memory is full by then. `ALMOST` says which
alerts would fire on a day were it not for their `for`: the day comes that close.
"""

from collections.abc import Callable
from dataclasses import replace

from tests.alerts.days import GIB, MINUTE, Day, Span, Value, Values

SECONDS = 3 * 3600
T = 90 * MINUTE

_U = 'unit="vllm.service",manager="system"'
_E = f'{_U},engine="vllm",endpoint="http://127.0.0.1:8000"'
_G = 'gpu="0",uuid="GPU-0"'
_CURRENT = f'llmhost_gpu_holder_memory_bytes{{{_G},{_U},kind="current"}}'
_LEFTOVER = f'llmhost_gpu_holder_memory_bytes{{{_G},{_U},kind="leftover"}}'
_UNATTRIBUTED = f"llmhost_gpu_unattributed_memory_bytes{{{_G}}}"
_STARTABLE = f"llmhost_unit_startable{{{_U}}}"
_MODEL = f'{_E},model="m",engine_index="0"'


def between(begin: int, end: int, inside: Value, outside: Value = None) -> Values:
    return lambda at: inside if begin <= at < end else outside


def away(begin: int, end: int) -> Callable[[int], bool]:
    return lambda at: not begin <= at < end


def going_on(*spans: Span) -> tuple[Span, ...]:
    return (Span(at=-7200, does="serves", start=("manual", "clean")), *spans)


# Up for eight minutes of each twenty: a proxy starts it when there is a request, and stops it when there is none.
_SCALED = tuple(
    Span(at=begin + after, does=does, start=start)
    for begin in range(0, SECONDS, 20 * MINUTE)
    for after, does, start in (
        (0, "loads", ("manual", "clean")),
        (60, "serves", None),
        (8 * MINUTE, "stops", None),
        (9 * MINUTE, "rests", None),
    )
)

QUIET = (
    Day(name="serves"),
    Day(name="exporter-restarted", scraped=away(T, T + 45)),
    # without a state directory: what it counted begins anew
    Day(
        name="exporter-restarted-without-state",
        scraped=away(T, T + 45),
        series={
            f'llmhost_unit_starts_total{{{_U},trigger="auto",verdict="clean"}}': between(0, T, 9, 0),
            f'llmhost_unit_starts_total{{{_U},trigger="auto",verdict="resident"}}': between(0, T, 7, 0),
            f'llmhost_unit_failures_total{{{_U},result="oom-kill"}}': between(0, T, 5, 0),
            'llmhost_dropped_series_total{family="llmhost_unit_info"}': between(0, T, 3, None),
        },
    ),
    Day(
        name="host-rebooted",
        scraped=away(T, T + 9 * MINUTE),
        spans=going_on(
            Span(at=T, does="has yet to start"),
            Span(at=T + 12 * MINUTE, does="waits in start-pre", start=("manual", "clean")),
            Span(at=T + 13 * MINUTE, does="loads"),
            Span(at=T + 17 * MINUTE, does="serves"),
        ),
        series={
            f"llmhost_gpu_fabric_ready{{{_G}}}": between(T, T + 12 * MINUTE, 0, 1),
            _STARTABLE: between(T, T + 12 * MINUTE, 0),
            f"llmhost_guard_last_run_timestamp_seconds{{{_U}}}": lambda at: (
                None if T <= at < T + 13 * MINUTE else min(at, T + 13 * MINUTE)
            ),
        },
    ),
    Day(
        name="stopped-and-started",
        spans=going_on(
            Span(at=T, does="stops"),
            Span(at=T + 80, does="rests"),
            Span(at=T + 45 * MINUTE, does="loads", start=("manual", "clean")),
            Span(at=T + 49 * MINUTE, does="serves"),
        ),
        series={
            _UNATTRIBUTED: between(T + 80, T + 200, 90 * GIB, GIB // 4),
            _STARTABLE: lambda at: int(at >= T + 200) if T + 80 <= at < T + 45 * MINUTE else None,
        },
    ),
    # restarted by hand with another model: memory comes back while its guard waits, and the load takes 15 minutes
    Day(
        name="new-model-deployed",
        spans=going_on(
            Span(at=T, does="stops"),
            Span(at=T + 60, does="waits in start-pre", start=("manual", "clean")),
            Span(at=T + 240, does="loads"),
            Span(at=T + 19 * MINUTE, does="serves"),
        ),
        series={
            _UNATTRIBUTED: between(T + 60, T + 240, 90 * GIB, GIB // 4),
            # its weights pass through shared memory
            "llmhost_shm_used_bytes": lambda at: (
                10 * GIB + (0 if at < T + 240 else min(360, (at - T - 240) * 2 // 5)) * GIB
            ),
        },
    ),
    Day(
        name="long-load",
        spans=going_on(
            Span(at=T, does="loads in start", start=("manual", "clean")), Span(at=T + 15 * MINUTE, does="serves")
        ),
    ),
    Day(
        name="crashed-once",
        spans=going_on(
            Span(at=T, does="waits to restart"),
            Span(at=T + 30, does="waits in start-pre", start=("auto", "clean")),
            Span(at=T + 150, does="loads"),
            Span(at=T + 300, does="serves"),
        ),
        series={
            _UNATTRIBUTED: between(T, T + 150, 90 * GIB, GIB // 4),
            _STARTABLE: between(T, T + 30, 0),
            f'llmhost_unit_failures_total{{{_U},result="exit-code"}}': between(0, T, 0, 1),
        },
    ),
    Day(name="target-down", scraped=away(T, T + 9 * MINUTE)),
    Day(name="removed-from-discovery", scraped=lambda at: True if at < T else None),
    # monitored from now on; what it counted and when it last failed is history
    Day(
        name="monitored-from-now-on",
        scraped=lambda at: None if at < T else True,
        starts_before={("auto", "clean"): 9, ("auto", "resident"): 7, ("manual", "clean"): 3},
        series={
            f'llmhost_unit_failures_total{{{_U},result="oom-kill"}}': 4,
            f"llmhost_unit_last_resident_start_timestamp_seconds{{{_U}}}": -9000,
            f'llmhost_gpu_last_xid_timestamp_seconds{{{_G},xid="79"}}': 600,
            f'llmhost_gpu_last_xid_timestamp_seconds{{{_G},xid="31"}}': 600,
            f'llmhost_guard_last_verdict{{{_U},verdict="held"}}': 1,
            'llmhost_dropped_series_total{family="llmhost_unit_info"}': 50,
        },
    ),
    # and restarts once, at the second scrape: what increase() makes several of
    Day(
        name="monitored-as-it-crashes",
        scraped=lambda at: None if at < T else True,
        starts_before={("auto", "clean"): 9},
        spans=going_on(Span(at=T + 20, does="loads", start=("auto", "clean")), Span(at=T + 120, does="serves")),
    ),
    Day(
        name="counters-set-back",
        series={
            f'llmhost_unit_starts_total{{{_U},trigger="auto",verdict="clean"}}': between(0, T, 40, 2),
            f'llmhost_unit_starts_total{{{_U},trigger="auto",verdict="resident"}}': between(0, T, 40, 1),
            f'llmhost_unit_failures_total{{{_U},result="oom-kill"}}': between(0, T, 40, 1),
        },
    ),
    # its unit is gone from systemd, and from the page
    Day(
        name="unit-removed",
        series={
            'llmhost_unit_info{unit="old.service",manager="system",load_state="loaded"}': between(0, T, 1),
            'llmhost_unit_wanted{unit="old.service",manager="system"}': between(0, T, 0),
            'llmhost_unit_active_state{unit="old.service",manager="system",state="failed"}': between(0, T, 1),
        },
    ),
    # another's container on the same GPU, and more requests than it can serve
    Day(
        name="co-tenant-busy",
        series={
            f'llmhost_gpu_holder_memory_bytes{{{_G},unit="",manager="",kind="container"}}': 60 * GIB,
            f'llmhost_gpu_holder_memory_bytes{{{_G},unit="",manager="",kind="session"}}': 3 * GIB,
            f"llmhost_engine_requests_running{{{_MODEL}}}": 256,
            f"llmhost_engine_requests_waiting{{{_MODEL}}}": 900,
            f"llmhost_engine_kv_cache_usage_ratio{{{_MODEL}}}": 1,
        },
    ),
    Day(
        name="asleep",
        spans=going_on(Span(at=T, does="sleeps")),
        series={f"llmhost_engine_requests_waiting{{{_MODEL}}}": between(T, SECONDS, 3, 0)},
    ),
    # long prompts: for ten minutes steps are made and no token comes
    Day(
        name="reads-long-prompts",
        series={
            f"llmhost_engine_generation_tokens_total{{{_MODEL}}}": lambda at: 50 * (min(at, T) + max(0, at - T - 600))
        },
    ),
    # the same by a socket, with what it runs ending by itself
    Day(
        name="started-by-a-socket",
        spans=tuple(replace(span, start=span.start and ("unit", "clean")) for span in _SCALED),
    ),
    Day(name="scaled-to-zero", spans=_SCALED, starts_before={("manual", "clean"): 20}),
    # the exporter lets go of the driver for a reset of the GPU
    Day(
        name="gpu-reset",
        spans=going_on(
            Span(at=T, does="stops"),
            Span(at=T + 60, does="rests"),
            Span(at=T + 600, does="loads", start=("manual", "clean")),
            Span(at=T + 800, does="serves"),
        ),
        series={
            'llmhost_collector_success{collector="nvml"}': between(T, T + 900, 0, 1),
            'llmhost_collector_fault{collector="nvml",cause="released"}': between(T, T + 900, 1),
            f"llmhost_gpu_up{{{_G}}}": between(T, T + 240, 0, 1),
        },
    ),
    # a GB10: the GPU's memory is the host's
    Day(
        name="unified-memory",
        without=("llmhost_gpu_memory", "llmhost_gpu_info", "llmhost_gpu_unattributed"),
        series={
            f'llmhost_gpu_info{{{_G},unified_memory="true"}}': 1,
            f'llmhost_gpu_holder_memory_bytes{{{_G},unit="",manager="",kind="orphan"}}': 20 * GIB,
            _LEFTOVER: 20 * GIB,
            f'llmhost_gpu_holder_memory_bytes{{{_G},unit="",manager="",kind="gone"}}': 20 * GIB,
        },
    ),
    # no GPU and no engine: a host that another team has put llmhost on
    Day(
        name="no-gpu",
        spans=(Span(at=-7200, does="rests"),),
        without=("llmhost_gpu", "llmhost_engine", "llmhost_guard", "llmhost_driver"),
        series={
            'llmhost_collector_success{collector="nvml"}': 0,
            'llmhost_collector_fault{collector="nvml",cause="no_device"}': 1,
            _CURRENT: lambda _: None,
        },
    ),
)

# Two starts that found memory in their way are told of. It then serves, or is stopped, for so long that this is over by
# T; what it does from then on, by hand, is within the hour in which they are counted, and is nobody's business.
_INCIDENT = (
    Span(at=T - 50 * MINUTE, does="waits to restart"),
    Span(at=T - 50 * MINUTE + 30, does="loads", start=("auto", "resident")),
    Span(at=T - 49 * MINUTE, does="waits to restart"),
    Span(at=T - 49 * MINUTE + 30, does="loads", start=("auto", "resident")),
)
_BY_HAND = (
    Span(at=T, does="stops"),
    Span(at=T + 60, does="loads", start=("manual", "clean")),
    Span(at=T + 20 * MINUTE, does="serves"),
)
_SERVES_AGAIN = Span(at=T - 45 * MINUTE, does="serves")
_STOPPED = (Span(at=T - 40 * MINUTE, does="stops"), Span(at=T - 39 * MINUTE, does="rests"))

AFTER_INCIDENTS = (
    Day(name="restarted-by-hand", spans=going_on(*_INCIDENT, _SERVES_AGAIN, *_BY_HAND)),
    Day(name="started-by-hand", spans=going_on(*_INCIDENT, *_STOPPED, *_BY_HAND[1:])),
    # the exporter is not there as the host boots
    Day(
        name="host-rebooted",
        scraped=away(T, T + 9 * MINUTE),
        spans=going_on(
            *_INCIDENT,
            _SERVES_AGAIN,
            Span(at=T, does="has yet to start"),
            Span(at=T + 8 * MINUTE, does="loads", start=("manual", "clean")),
            Span(at=T + 20 * MINUTE, does="serves"),
        ),
    ),
    # an engine without metrics
    Day(name="no-metrics", spans=going_on(*_INCIDENT, _SERVES_AGAIN, *_BY_HAND), without=("llmhost_engine",)),
)

ALMOST = {
    ("host-rebooted", "LlmhostUnitDown"),
    ("host-rebooted", "LlmhostFabricNotReady"),
    ("host-rebooted", "LlmhostStartWouldBeRefused"),
    ("host-rebooted", "LlmhostExporterDown"),
    ("target-down", "LlmhostExporterDown"),
    ("exporter-restarted", "LlmhostExporterDown"),
    ("exporter-restarted-without-state", "LlmhostExporterDown"),
    ("stopped-and-started", "LlmhostMemoryHeldByNobody"),
    ("new-model-deployed", "LlmhostMemoryHeldByNobody"),
    ("crashed-once", "LlmhostMemoryHeldByNobody"),
    ("crashed-once", "LlmhostStartWouldBeRefused"),
    ("crashed-once", "LlmhostUnitDown"),
    ("gpu-reset", "LlmhostGpuLost"),
}
