"""A fleet: gpu-01 to gpu-20 of tokyo and as many of osaka, over 6 hours, scraped each minute; one H100 each.

vllm.service serves on all of them and generates 500 tokens/s, but

    3 loop: gpu-03 of tokyo, gpu-07 and gpu-11 of osaka. From 7200 on their unit ends (exit-code) every 10 minutes,
      waits 30 s, and loads, which it never gets done with: ends at 7200, 7800, …, restarts at 7230, 7830, …, 21030.
    2 have stuck memory: gpu-03 of tokyo, where the run that ended at 7200 keeps 60 GB (leftover), so that its restarts
      are resident; those of the other two are clean. And gpu-15 of osaka, where the unit was stopped at 10800 and
      nobody holds 70 GB since.
    1 is blind: gpu-20 of tokyo, whose exporter is dead from 14400 on.

Only what recording rules, variables and links ask for is here, as 40 hosts are many.
"""

from tests.grafana.histories.hosts import H100, NEED, Gpus, exporter
from tests.grafana.histories.series import DAY, HOUR, History, Host
from tests.grafana.histories.units import End, Start, Traffic, Unit

UNIT = "vllm.service"
END, STOP, DEAD = 7200, 10800, 14400
RESTARTS = range(7230, 21031, 600)
RESIDENT, LOOPING = ("tokyo", 3), {("tokyo", 3), ("osaka", 7), ("osaka", 11)}
STOPPED, BLIND = ("osaka", 15), ("tokyo", 20)
KEPT = (
    *(
        "up",
        "ALERTS",
        "ALERTS_FOR_STATE",
        "llmhost_build_info",
        "llmhost_policy_resident_bytes",
        "llmhost_collector_success",
    ),
    *("llmhost_gpu_info", "llmhost_gpu_up", "llmhost_gpus", "llmhost_gpus_expected", "llmhost_gpu_memory_total_bytes"),
    *("llmhost_gpu_holder_memory_bytes", "llmhost_gpu_unattributed_memory_bytes", "llmhost_unit_info"),
    *("llmhost_unit_active_state", "llmhost_unit_sub_state", "llmhost_unit_wanted", "llmhost_unit_starts_total"),
    *("llmhost_unit_failures_total", "llmhost_unit_last_start_timestamp_seconds", "llmhost_engine_up"),
    *("llmhost_engine_generation_tokens_total", "llmhost_engine_prompt_tokens_total"),
    *("llmhost_engine_requests_running", "llmhost_engine_requests_waiting", "llmhost_engine_kv_cache_usage_ratio"),
)


def fleet() -> History:
    history = History("fleet", 6 * HOUR, every=60, keeps=frozenset(KEPT))
    for cluster in ("tokyo", "osaka"):
        for number in range(1, 21):
            _host(history.host(f"gpu-{number:02}.example.com:10061", cluster), (cluster, number))
    history.fires("LlmhostWatchdog", "none", {}, (0, history.seconds))
    return history


def _host(host: Host, which: tuple[str, int]) -> None:
    history, end = host.history, host.history.seconds
    unit = host.labels | {"unit": UNIT, "manager": "system"}
    does, starts, ends = [(-3 * DAY, "serves")], [Start(-3 * DAY, "manual", "clean")], []
    held: list[tuple[float, float | None]] = [(0, 78e9)]
    gpus = Gpus(host, "NVIDIA H100 80GB HBM3", H100, 1)
    if which in LOOPING:
        held.append((END, None))
        does.append((END, "waits to restart"))
        does += [turn for start in RESTARTS for turn in ((start, "loads"), (start + 570, "waits to restart"))]
        starts += [Start(start, "auto", "resident" if which == RESIDENT else "clean") for start in RESTARTS]
        ends += [End(END, "exit-code", 1), *(End(start + 570, "exit-code", 1) for start in RESTARTS)]
        history.fires("LlmhostRestartLoop", "critical", unit | {"memory": "unknown"}, (7860, end))
    if which == RESIDENT:
        gpus.holds([0], [(END, 60e9)], kind="leftover", unit=UNIT)
        history.fires("LlmhostRestartedWhileMemoryResident", "critical", unit, (7260, end))
        history.fires("LlmhostMemoryHeldByDownUnit", "warning", unit, (END, end), wait=300)
    if which == STOPPED:
        held.append((STOP, None))
        does.append((STOP, "rests"))
        gpus.holds_unattributed([0], [(0, 0), (STOP, 70e9)])
        history.fires("LlmhostMemoryHeldByNobody", "warning", host.labels, (STOP, end), wait=300)
    if which == BLIND:
        host.not_scraped((DEAD, end + 1))
        history.fires("LlmhostExporterDown", "critical", host.labels, (DEAD, end), wait=600)
    exporter(host, collectors=("nvml", "procfs", "systemd"))
    gpus.holds([0], held, kind="current", unit=UNIT)
    gpus.write()
    traffic = Traffic("llama-8b", generation=500, prompt=2000, running=5, waiting=0, kv_cache=0.2)
    Unit(gpus=gpus, name=UNIT, needs={0: NEED}, does=does, starts=starts, ends=ends, traffic=traffic).write()
