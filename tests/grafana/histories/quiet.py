"""A quiet day: two hosts that serve for 24 hours, and one planned restart.

gpu-1 and gpu-2 of tokyo have 2 x H100 of 85.5 GB each. vllm.service serves on both GPUs of each, holds 78 GB of either,
needs 78.7, is guarded, and generates 800 tokens/s. On gpu-2 there is vllm-spare.service besides, which nobody has
started and nobody wants up.

    36000  gpu-1: systemctl restart. It stops for 30 s.
    36030  A manual start; its guard waits 20 s for the memory,
    36050  and finds all clean. The engine loads.
    36410  It serves again, seen at 36420, 390 s after the start.

Nothing fires but the watchdog. It is scraped each minute, as a day of half minutes is much to write.
"""

from tests.grafana.histories.hosts import H100, NEED, Gpus, Shm, exporter, guard, shared_memory, trackers
from tests.grafana.histories.series import DAY, History, Host
from tests.grafana.histories.units import End, Start, Traffic, Unit

UNIT, SPARE = "vllm.service", "vllm-spare.service"
STOP, START, CLEAN, READY = 36000, 36030, 36050, 36410


def quiet() -> History:
    history = History("quiet", DAY, every=60)
    _host(history.host("gpu-1.example.com:10061"), restarted=True)
    spare = _host(history.host("gpu-2.example.com:10061"), restarted=False)
    Unit(
        gpus=spare,
        name=SPARE,
        needs={0: NEED},
        does=[(-9 * DAY, "rests")],
        starts=[],
        unit_file_state="disabled",
        room=[(0, 0)],
        port=8001,
    ).write()
    history.fires("LlmhostWatchdog", "none", {}, (0, history.seconds))
    return history


def _host(host: Host, *, restarted: bool) -> Gpus:
    exporter(host)
    gpus = Gpus(host, "NVIDIA H100 80GB HBM3", H100, 2)
    restart = [(STOP, "stops"), (START, "waits for memory"), (CLEAN, "loads"), (READY, "serves")] if restarted else []
    gpus.holds(
        [0, 1], [(0, 78e9), *([(STOP + 15, None), (READY, 78e9)] if restarted else [])], kind="current", unit=UNIT
    )
    gpus.write()
    Unit(
        gpus=gpus,
        name=UNIT,
        needs={0: NEED, 1: NEED},
        does=[(-3 * DAY, "serves"), *restart],
        starts=[
            Start(-3 * DAY, "manual", "clean"),
            *([Start(START, "manual", "clean", judged=CLEAN)] if restarted else []),
        ],
        ends=[End(START, "success", 0)] if restarted else [],
        traffic=Traffic("llama-70b", generation=800, prompt=3000, running=9, waiting=0, kv_cache=0.3),
        ready_seconds=[(0, 360), *([(STOP, None), (READY, 390)] if restarted else [])],
        guarded=[(0, "true")],
        gives_up=[(0, 1)],
    ).write()
    guard(host, UNIT, [(-3 * DAY, 1, "free"), *([(CLEAN, 20, "free")] if restarted else [])])
    host.set("llmhost_orphan_processes", 0, engine="none", role="none")
    trackers(host, {"attached": 1})
    shared_memory(host, {"python_shm": Shm({"live": [(0, 3)]}, 40_960, 33_554_432)})
    return gpus
