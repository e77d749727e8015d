"""Hosts that cannot be seen: three of tokyo, over 4 hours, with 2 x H100 each; vllm.service serves on all the time.

gpu-1  Its exporter is dead from 7200 on: `up` is 0, and it has no other series.
gpu-2  All well; its exporter left 3 series of one family out, long ago.
gpu-3  Its collector nvml fails from 5400 on, by timeout: it has no series of GPUs, nor of what units need of them.
"""

from tests.grafana.histories.hosts import H100, NEED, Gpus, Shm, exporter, shared_memory, trackers
from tests.grafana.histories.series import DAY, HOUR, History, Host
from tests.grafana.histories.units import Start, Traffic, Unit

UNIT = "vllm.service"
DEAD, FAILING = 7200, 5400


def blind() -> History:
    history = History("blind", 4 * HOUR)
    dead, well, failing = (history.host(f"gpu-{number}.example.com:10061") for number in (1, 2, 3))
    dead.not_scraped((DEAD, history.seconds + 1))
    exporter(dead)
    exporter(well)
    exporter(failing, failing={"nvml": ("timeout", FAILING)})
    for host in (dead, well):
        _serves(Gpus(host, "NVIDIA H100 80GB HBM3", H100, 2))
    _serves(Gpus(failing, "NVIDIA H100 80GB HBM3", H100, 2, read_until=FAILING))
    well.set("llmhost_dropped_series_total", 3, family="llmhost_unit_processes")
    # In its last hour a unit was wanted; from then on it goes by its own series.
    history.fires("LlmhostExporterDown", "critical", dead.labels, (DEAD, history.seconds), wait=600)
    history.fires(
        "LlmhostCollectorFailing",
        "warning",
        failing.labels | {"collector": "nvml"},
        (FAILING, history.seconds),
        wait=600,
    )
    history.fires("LlmhostWatchdog", "none", {}, (0, history.seconds))
    return history


def _serves(gpus: Gpus) -> None:
    host: Host = gpus.host
    gpus.holds([0, 1], [(0, 78e9)], kind="current", unit=UNIT)
    gpus.write()
    Unit(
        gpus=gpus,
        name=UNIT,
        needs={0: NEED, 1: NEED},
        does=[(-3 * DAY, "serves")],
        starts=[Start(-3 * DAY, "manual", "clean")],
        traffic=Traffic("llama-70b", generation=800, prompt=3000, running=9, waiting=0, kv_cache=0.3),
        ready_seconds=[(0, 360)],
    ).write()
    host.set("llmhost_orphan_processes", 0, engine="none", role="none")
    trackers(host, {"attached": 1})
    shared_memory(host, {"python_shm": Shm({"live": [(0, 3)]}, 40_960, 33_554_432)})
