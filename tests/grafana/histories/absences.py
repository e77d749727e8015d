"""Hosts that have no such thing: two of tokyo, over 2 hours, on which all is well.

spark-1  A GB10, whose memory is the host's: no series of GPU memory but those of holders, no need, no fabric.
         vllm.service runs and holds 60 GB; 5 GB more are held by a process of its run before, which a start would not
         mind. No engine is found in it, and no guard. Nothing is stuck: of unified memory that is not told.
cpu-1    No GPU: its collector nvml is switched off. llama.service runs; no engine, no guard, no series of GPUs.
"""

from tests.grafana.histories.hosts import Gpus, Shm, exporter, shared_memory, trackers
from tests.grafana.histories.series import DAY, HOUR, History, Host
from tests.grafana.histories.units import Start, Unit

COLLECTORS = ("nvml", "procfs", "systemd", "shm")


def absences() -> History:
    history = History("absences", 2 * HOUR)
    spark, cpu = history.host("spark-1.example.com:10061"), history.host("cpu-1.example.com:10061")
    exporter(spark, collectors=COLLECTORS)
    exporter(cpu, collectors=COLLECTORS, failing={"nvml": ("disabled", 0)})
    gb10 = Gpus(spark, "NVIDIA GB10", 0, 1, memory=False, power=[(0, 45)])
    gb10.holds([0], [(0, 60e9)], kind="current", unit="vllm.service")
    gb10.holds([0], [(0, 5e9)], kind="leftover", unit="vllm.service")
    gb10.write(fabric=False)
    _runs(gb10, spark, "vllm.service", "vllm", 1)
    _runs(Gpus(cpu, "", 0, 0), cpu, "llama.service", "llamacpp", 0)
    history.fires("LlmhostWatchdog", "none", {}, (0, history.seconds))
    return history


def _runs(gpus: Gpus, host: Host, unit: str, engine: str, leftovers: int) -> None:
    start = Start(-DAY, "manual", "clean")
    does = [(-DAY, "serves")]
    Unit(
        gpus=gpus, name=unit, engine=engine, needs={}, does=does, starts=[start], leftovers=[(0, leftovers)], room=()
    ).write()
    host.set("llmhost_orphan_processes", 0, engine="none", role="none")
    trackers(host, {})
    shared_memory(host, {"python_shm": Shm({"live": [(0, 0)]}, 40_960, 33_554_432)})
