"""A GPU falls off the bus: gpu-1 of tokyo with 8 x H100, over 4 hours.

    0  vllm.service serves on all 8 GPUs and holds 78 GB of each; 1500 tokens/s, 24 requests running.
 7200  XID 79: GPU 5 is lost. 7 of 8 GPUs are there, and one call of the driver's is stuck for a minute. The engine
       answers and generates nothing: hung.
 9000  It does not answer any more: timeout.
 9900  systemd's watchdog ends it by a signal. It is restarted 30 s later, and exits with 1 after 30 s, since GPU 5 is
       not there: starts at 9930, 9990, 10050, 10110, 10170, verdict unknown; ends at 9960, …, 10200.
10230  The sixth is refused, start-limit-hit: failed until the end at 14400.
"""

from tests.grafana.histories.hosts import H100, NEED, Gpus, Shm, exporter, shared_memory, trackers
from tests.grafana.histories.series import DAY, HOUR, At, History
from tests.grafana.histories.units import End, Start, Traffic, Unit

UNIT, GPU = "vllm.service", 5
LOST, SILENT, KILLED, REFUSED = 7200, 9000, 9900, 10230
RESTARTS = tuple(range(9930, 10171, 60))


def lost_gpu() -> History:
    history = History("lost_gpu", 4 * HOUR)
    host = history.host("gpu-1.example.com:10061")
    exporter(host)
    gpus = Gpus(
        host,
        "NVIDIA H100 80GB HBM3",
        H100,
        8,
        lost={GPU: LOST},
        utilization=[(0, 0.9), (LOST, 1), (KILLED, 0)],
        power=[(0, 600), (LOST, 130)],
    )
    gpus.holds(range(8), [(0, 78e9), (KILLED, None)], kind="current", unit=UNIT)
    gpus.write()
    lost = gpus.labels(GPU)
    host.set("llmhost_gpu_xid_errors_total", [(LOST, 1)], **lost, xid="79")
    host.set("llmhost_gpu_last_xid_timestamp_seconds", [(LOST, At(LOST))], **lost, xid="79")
    turns = [turn for start in RESTARTS for turn in ((start, "loads"), (start + 30, "waits to restart"))]
    Unit(
        gpus=gpus,
        name=UNIT,
        needs=dict.fromkeys(range(8), NEED),
        does=[
            (-3 * DAY, "serves"),
            (LOST, "hangs"),
            (SILENT, "does not answer"),
            (KILLED, "waits to restart"),
            *turns,
            (REFUSED, "has failed"),
        ],
        starts=[Start(-3 * DAY, "manual", "clean"), *(Start(start, "auto", "unknown") for start in RESTARTS)],
        ends=[
            End(KILLED, "watchdog", 6),
            *(End(start + 30, "exit-code", 1) for start in RESTARTS),
            End(REFUSED, "start-limit-hit", 1),
        ],
        traffic=Traffic("llama-405b"),
        ready_seconds=[(0, 700), (KILLED, None)],
        room=[(0, 1), (LOST, 0)],
        gives_up=[(0, 1)],
    ).write()
    host.set("llmhost_orphan_processes", 0, engine="none", role="none")
    trackers(host, {"attached": 1})
    shared_memory(host, {"python_shm": Shm({"live": [(0, 9)]}, 40_960, 33_554_432)})
    _alerts(history, host.labels, lost)
    return history


def _alerts(history: History, host: dict[str, str], gpu: dict[str, str]) -> None:
    unit = host | {"unit": UNIT, "manager": "system"}
    engine = unit | {"engine": "vllm", "endpoint": "http://127.0.0.1:8000"}
    history.fires("LlmhostGpuLost", "critical", host | gpu, (LOST, history.seconds), wait=300)
    history.fires("LlmhostXidFatal", "warning", host | gpu | {"xid": "79"}, (LOST, LOST + 3570))
    # At 7500 nothing has come of its requests for 5 minutes; until it does not answer.
    history.fires(
        "LlmhostEngineHung",
        "critical",
        engine | {"model": "llama-405b", "engine_index": "0"},
        (7500, SILENT - 30),
        wait=180,
    )
    history.fires("LlmhostEngineDown", "critical", engine, (SILENT, KILLED - 30), wait=180)
    # From the second restart until, an hour after the fourth, one is left in the last hour; and 10 minutes.
    history.fires("LlmhostRestartLoop", "critical", unit | {"memory": "unknown"}, (9990, 14280))
    # Seen down at 10200, waiting for a restart that is refused.
    history.fires("LlmhostUnitDown", "critical", unit, (10200, history.seconds), wait=300)
    history.fires("LlmhostStartWouldBeRefused", "warning", unit, (10200, history.seconds), wait=300)
    history.fires("LlmhostWatchdog", "none", {}, (0, history.seconds))
