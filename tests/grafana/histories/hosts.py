"""A host in a written history, without its units: GPUs and holders of their memory, shared memory, the exporter."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from tests.grafana.histories.series import At, Host, Rises, Step, Steps, times, total

from llmhost.derive.segments import SegmentState
from llmhost.derive.trackers import TrackerState
from llmhost.model.guard_run import GuardVerdict

COLLECTORS = ("nvml", "procfs", "systemd", "shm", "engine", "guard")
RESERVED = 652_214_272.0  # bytes that the driver keeps of each GPU
H20, H100 = 102_625_181_696.0, 85_520_809_984.0  # bytes
NEED = 78_679_145_185.0  # 0.92 of an H100


@dataclass(slots=True)
class Gpus:
    """The GPUs of a host: set the holders, then `write`, which works out what is used and free."""

    host: Host
    name: str
    total: float
    number: int
    lost: Mapping[int, float] = field(default_factory=dict)  # GPU -> when it fell off the bus
    read_until: float = float("inf")  # when the collector nvml begins to fail
    memory: bool = True  # False: unified memory, or a driver that tells nothing of it
    utilization: Steps = ((0, 0.9),)
    power: Steps = ((0, 400),)
    _held: dict[tuple[int, str, str], tuple[Steps, int]] = field(default_factory=dict)
    _unattributed: dict[int, Steps] = field(default_factory=dict)

    def labels(self, gpu: int) -> dict[str, str]:
        return {"gpu": str(gpu), "uuid": f"GPU-fa4e{gpu:04x}-0000-4000-8000-{gpu:012x}"}

    def holds(self, gpus: Sequence[int], steps: Steps, *, kind: str, unit: str = "", processes: int = 1) -> None:
        for gpu in gpus:
            self._held[gpu, kind, unit] = steps, processes

    def holds_unattributed(self, gpus: Sequence[int], steps: Steps) -> None:
        for gpu in gpus:
            self._unattributed[gpu] = steps

    def write(self, *, fabric: bool = True) -> None:
        host = self.host
        if self.number:
            remaining = [(second, self.number - number) for number, second in enumerate(sorted(self.lost.values()), 1)]
            host.set("llmhost_gpus", self._until_failing([(0, self.number), *remaining]))
            host.set("llmhost_gpus_expected", self._until_failing([(0, self.number)]))
            host.set("llmhost_driver_mismatch", self._until_failing([(0, 0)]))
        for gpu in range(self.number):
            labels = self.labels(gpu)
            self._facts(gpu)
            up = [(0, 1.0), *((second, 0.0) for second in self._lost_at(gpu))]
            host.set("llmhost_gpu_up", self._until_failing(up), **labels)
            gauges: dict[str, Steps] = {
                "utilization_ratio": self.utilization,
                "temperature_celsius": [(0, 61)],
                "power_watts": self.power,
            }
            if fabric:
                gauges["fabric_ready"] = [(0, 1)]
            if self.memory:
                gauges |= self._memory(gpu)
            for name, steps in gauges.items():
                host.set(f"llmhost_gpu_{name}", self.until_lost(gpu, steps), **labels)
            for (of, kind, unit), (steps, processes) in self._held.items():
                if of == gpu:
                    who = labels | {"kind": kind, "unit": unit, "manager": "system" if unit else ""}
                    held = self.until_lost(gpu, steps)
                    host.set("llmhost_gpu_holder_memory_bytes", held, **who)
                    many = [(second, None if step is None else processes) for second, step in held]
                    host.set("llmhost_gpu_holder_processes", many, **who)

    def _facts(self, gpu: int) -> None:
        labels = self.labels(gpu)
        facts = {"name": self.name, "pci_bus_id": f"00000000:{0x10 + gpu:02X}:00.0", "driver_version": "570.86.16"}
        facts |= {"parent_uuid": "", "unified_memory": "false" if self.memory else "true"}
        lost_at = list(self._lost_at(gpu))
        apis = [(0, "v2" if self.memory else ""), *((second, "") for second in lost_at), (self.read_until, None)]
        self.host.current("llmhost_gpu_info", "memory_api", apis, **labels, **facts)
        if lost_at:
            self.host.current("llmhost_gpu_fault", "cause", [(lost_at[0], "lost")], **labels)

    def _memory(self, gpu: int) -> dict[str, Steps]:
        unattributed = self._unattributed.get(gpu, [(0, 0)])
        held = [steps for (of, _, _), (steps, _) in self._held.items() if of == gpu]
        used = total(unattributed, *held)
        return {
            "memory_total_bytes": [(0, self.total)],
            "memory_free_bytes": total([(0, self.total - RESERVED)], times(used, -1)),
            "unattributed_memory_bytes": unattributed,
        }

    def _lost_at(self, gpu: int) -> Iterator[float]:
        if gpu in self.lost:
            yield self.lost[gpu]

    def until_lost(self, gpu: int, steps: Steps) -> Steps:
        return self._until_failing(_until(min(self._lost_at(gpu), default=float("inf")), steps))

    def _until_failing(self, steps: Steps) -> Steps:
        return _until(self.read_until, steps)


def _until(end: float, steps: Steps) -> Steps:
    return [*((second, step) for second, step in steps if second < end), (end, None)]


class Shm(NamedTuple):
    """The number of segments of a kind in each state, and the size of each in bytes."""

    states: Mapping[str, Steps]
    allocated: float
    apparent: float


def shared_memory(host: Host, kinds: Mapping[str, Shm], *, size: float = 512e9) -> None:
    used: list[Steps] = []
    files: list[Steps] = []
    for kind, (states, allocated, apparent) in kinds.items():
        for name, each in (("segments", 1), ("segment_bytes", allocated), ("segment_apparent_bytes", apparent)):
            sized = {state: times(steps, each) for state, steps in states.items()}
            host.counts(f"llmhost_shm_{name}", "state", list(SegmentState), sized, kind=kind)
        used += [times(steps, allocated) for steps in states.values()]
        files += list(states.values())
    host.set("llmhost_shm_size_bytes", size)
    host.set("llmhost_shm_used_bytes", total(*used))
    host.set("llmhost_shm_hidden_bytes", 0)
    host.set("llmhost_shm_unlisted_files", 0)
    host.set("llmhost_shm_inodes", 100_000)
    host.set("llmhost_shm_inodes_used", total(*files))


def trackers(host: Host, states: Mapping[str, Steps | float]) -> None:
    host.counts("llmhost_resource_trackers", "state", list(TrackerState), states)


def guard(host: Host, unit: str, runs: Sequence[tuple[float, float, str]]) -> None:
    """Set the runs of a unit's guard: end, wait in seconds, verdict."""
    labels = {"unit": unit, "manager": "system"}
    host.set("llmhost_guard_last_run_timestamp_seconds", [(end, At(end)) for end, _, _ in runs], **labels)
    host.set("llmhost_guard_last_wait_seconds", [(end, waited) for end, waited, _ in runs], **labels)
    host.current("llmhost_guard_last_verdict", "verdict", [(end, verdict) for end, _, verdict in runs], **labels)
    for verdict in GuardVerdict:
        found = [run_verdict == verdict for _, _, run_verdict in runs]
        counted = [(end, float(sum(found[: number + 1]))) for number, (end, _, _) in enumerate(runs)]
        host.set("llmhost_guard_runs_total", counted, **labels, verdict=verdict)


def exporter(
    host: Host, *, collectors: Sequence[str] = COLLECTORS, failing: Mapping[str, tuple[str, float]] | None = None
) -> None:
    """Set the series of an exporter that was started an hour before the history.

    `failing`: collector -> cause, and since when it reads nothing; from the start where it is "disabled".
    """
    if tuple(sorted(host.labels.items())) not in host.history.dark:
        host.set("up", 1)
    host.set("llmhost_build_info", 1, version="0.1.0", revision="3f9c2aa", python_version="3.11.2")
    for name in collectors:
        success: list[tuple[float, Step]] = [(0, 1)]
        read: list[tuple[float, Step]] = [(0, Rises(1, start=At(0)))]
        if failing and name in failing:
            cause, since = failing[name]
            success.append((since, 0))
            host.current("llmhost_collector_fault", "cause", [(since, cause)], collector=name)
            if cause == "disabled":
                read = [(0, None)]
            else:
                read.append((since, At(since - host.history.every)))
        host.set("llmhost_collector_success", success, collector=name)
        host.set("llmhost_collector_duration_seconds", 0.02, collector=name)
        host.set("llmhost_collector_last_success_timestamp_seconds", read, collector=name)
    host.set("llmhost_config_reload_success", 1)
    host.set("llmhost_config_reload_last_success_timestamp_seconds", At(-3600))
    host.set("llmhost_unreadable_processes", 0)
    host.set("llmhost_policy_resident_bytes", 1000 << 20)
