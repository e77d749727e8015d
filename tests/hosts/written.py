"""A host written down in host.yml, stood up and observed (tests/hosts/README.md)."""

import contextlib
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml
from tests.fakes.bus import FakeSystemd, PrivateBus
from tests.fakes.loopback_engines import LoopbackEngines, listen
from tests.fakes.nvml import DRIVER_VERSION, FakeNvml
from tests.fakes.nvml_reader import calls_in, eventually
from tests.fakes.procfs import write_proc
from tests.fakes.written_history import history_of
from tests.fakes.written_shm import hold, mounted

from llmhost.assemble.exporter import Exporter
from llmhost.collect.clock import SystemClock
from llmhost.collect.observer import Observation
from llmhost.config.load import parse
from llmhost.config.paths import Paths
from llmhost.config.schema import Config
from llmhost.metrics.collector import Exposition, InForce
from llmhost.metrics.exposition import encode
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.host import Host
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok
from llmhost.sources.host import HostSource
from llmhost.state.guard_record import record

HOSTS = Path(__file__).parent
EPOCH = 1_767_225_600.0  # 2026-01-01T00:00:00Z, on every written host
UP_SECONDS = 86_400.0  # what CLOCK_BOOTTIME says on every written host

# What depends on the clock, or on the machine that the test runs on.
_VARYING = re.compile(
    r"(?:# (?:HELP|TYPE) )?(?:"
    r"llmhost_collector_duration_seconds|llmhost_collector_last_success_timestamp_seconds"
    r"|llmhost_gpu_last_xid_timestamp_seconds|llmhost_build_info|process_|python_)"
)
_STUCK = re.compile(r"^(llmhost_nvml_stuck_call_seconds\{.*\}) [0-9.]+$", re.MULTILINE)
_LATER_KEYS = {"after", "nvml", "library", "memory", "processes", "units"}
_KEYS = {
    "about",
    "config",
    "nvml",
    "library",
    "memory",
    "pid_namespace",
    "nvidia_device",
    "processes",
    "units",
    "history",
    "guards",
    "unit_files",
    "bus",
    "engines",
    "shm",
    "then",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenHost:
    name: str
    first: dict[str, Any]
    later: dict[str, Any] | None

    @property
    def expected(self) -> Path:
        return HOSTS / self.name / "expected" / "metrics.prom"


def names() -> list[str]:
    return sorted(path.parent.name for path in HOSTS.glob("*/host.yml"))


def read(name: str) -> WrittenHost:
    first = yaml.safe_load((HOSTS / name / "host.yml").read_text())
    later = first.pop("then", None)
    for state, known in ((first, _KEYS), (later or {}, _LATER_KEYS)):
        assert state.keys() <= known, f"{name}: unknown keys {state.keys() - known}"
    return WrittenHost(name=name, first=first, later=later)


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A host that stands: the settings to observe it, and the config text it was written with."""

    procfs: Path
    sysfs: Path
    shm: Path
    environment: dict[str, str]
    bus_address: str
    config: Config
    config_text: str
    engines: LoopbackEngines


class _AlwaysAwake(HostSource):
    """This machine's clocks would leak into the page where it has ever been suspended."""

    def read(self, deadline: float) -> Host:
        host = super().read(deadline)
        return Host(
            boot_id=host.boot_id,
            ticks_per_second=100,
            boottime_ahead_seconds=0.0,
            memory_total_bytes=host.memory_total_bytes,
            memory_available_bytes=host.memory_available_bytes,
        )


class _Clock(SystemClock):
    """Stands still where the host says after how many seconds its later observation is, and is then that much ahead."""

    def __init__(self, host: WrittenHost) -> None:
        self._stands_at = float(int(super().monotonic())) if "after" in (host.later or {}) else None
        self.ahead_seconds = 0.0

    def monotonic(self) -> float:
        return super().monotonic() if self._stands_at is None else self._stands_at + self.ahead_seconds


def page_of(host: WrittenHost, directory: Path) -> str:
    """Stand the host up, observe it as often as it says, and give the last page."""
    with looked_at(host, directory) as observed:
        return without_varying(observed.as_written(observed.page))


@dataclass(frozen=True, slots=True, kw_only=True)
class ObservedHost:
    """A host that stands and was observed as often as it says: the last page, and the way to observe it again."""

    page: str
    config: Config
    observe: Callable[[], Observation]
    as_written: Callable[[str], str]  # with the ports of host.yml for those that servers got


@contextlib.contextmanager
def looked_at(host: WrittenHost, directory: Path) -> Iterator[ObservedHost]:
    clock = _Clock(host)
    for guard in host.first.get("guards", ()):
        record(
            directory / "run",
            UnitId(guard["unit"]),
            GuardVerdict(guard["verdict"]),
            at=guard["at"],
            wait_seconds=guard["waited"],
        )
    with standing(host, directory) as (stands, later):
        exporter = Exporter(
            stands.config,
            Paths(procfs=stands.procfs, sysfs=stands.sysfs, shm=stands.shm, run=directory / "run"),
            clock=clock,
            environment=stands.environment,
            bus_address=stands.bus_address,
            host=_AlwaysAwake(procfs=stands.procfs),
            boottime=lambda: UP_SECONDS,
            history=history_of(host.first.get("history", {})),
        )

        def observe(deadline: float | None = None) -> Observation:
            usual = clock.monotonic() + stands.config.web.deadline_seconds
            return exporter.observe(usual if deadline is None else deadline)

        exposition = Exposition(
            observe=observe,
            in_force=lambda: InForce(config=stands.config, loaded_at=EPOCH, reload_success=True),
            version="",
            revision="",
            python_version="",
        )
        try:

            def read_page() -> str:
                deadline = clock.monotonic() + stands.config.web.deadline_seconds
                return encode(exposition.metrics(deadline), accept="")[0].decode()

            page = read_page()
            if host.later is not None:
                later()
                clock.ahead_seconds = float(host.later.get("after", 0))
                _wait_for_units(exporter, clock, host.later.get("units", []))
                if _events(host.later):
                    _wait_for_events(exporter, clock, _events(host.later))
                page = read_page()
            yield ObservedHost(page=page, config=stands.config, observe=observe, as_written=stands.engines.as_written)
        finally:
            exporter.close()


def without_varying(page: str) -> str:
    """Leave out what varies; of a call that hangs, only for how long it has: "2" stands for all of that."""
    return _STUCK.sub(r"\1 2.0", "".join(line + "\n" for line in page.splitlines() if not _VARYING.match(line)))


@contextlib.contextmanager
def standing(host: WrittenHost, directory: Path) -> Iterator[tuple[Standing, Callable[[], None]]]:
    """Stand the host up; what is given with it makes it what it is later."""
    config = dict(host.first.get("config", {}))
    for key, collector in (("engines", "engine"), ("shm", "shm")):
        if key not in host.first:
            config["collectors"] = {collector: False, **config.get("collectors", {})}
    config_text = yaml.safe_dump(config)
    nvml = FakeNvml(directory / "nvml")
    trace = directory / "nvml" / "trace" if _events(host.later or {}) else None
    procfs = directory / "proc"
    shm = host.first.get("shm")
    with (
        _bus(host.first) as (address, systemd),
        listen(host.first.get("engines", [])) as engines,
        mounted(shm, directory) as mount,
    ):

        def show(state: dict[str, Any]) -> None:
            nvml.install_library(state.get("library", DRIVER_VERSION))
            _drive(nvml, state.get("nvml", []), trace)
            _write_proc(procfs, state, engines)
            if shm is not None:
                hold(shm, mount, procfs, [*state["processes"], {"pid": 1}])

        def later() -> None:
            assert host.later is not None
            if trace is not None:
                watched = sum(line.startswith("gpu ") for line in host.first["nvml"])
                registered = ("nvmlDeviceRegisterEvents", 0)
                eventually(lambda: [(call, code) for call, _, code in calls_in(trace)].count(registered) >= watched)
            show(host.first | host.later)
            for unit in host.later.get("units", []):
                assert systemd is not None
                systemd.change(unit["Id"], **unit)

        show(host.first)
        yield (
            Standing(
                procfs=procfs,
                sysfs=_sysfs(directory / "sys", has_nvidia_device=host.first.get("nvidia_device", True)),
                shm=mount,
                environment={} if host.first.get("nvml") == "no library" else nvml.environment(),
                bus_address=address,
                config=parse(config_text, name="llmhost.yml"),
                config_text=config_text,
                engines=engines,
            ),
            later,
        )


@contextlib.contextmanager
def _bus(state: dict[str, Any]) -> Iterator[tuple[str, FakeSystemd | None]]:
    if state.get("bus") is False:
        yield "unix:path=/nonexistent/system_bus_socket", None
        return
    files = list(state.get("unit_files", {}).items())
    with PrivateBus() as bus, FakeSystemd(bus, units=state.get("units", []), unit_files=files) as systemd:
        yield bus.address, systemd


def _wait_for_units(exporter: Exporter, clock: _Clock, changed: list[dict[str, Any]]) -> None:
    """Signals take a moment to come through the bus."""
    states = {(unit["Id"], unit["ActiveState"]) for unit in changed}
    until = SystemClock().monotonic() + 120
    while states:
        units = exporter.observe(clock.monotonic() + 10).snapshot.units
        assert isinstance(units, Ok)
        states -= {(unit.id.name, unit.active_state) for unit in units.value.units}
        assert SystemClock().monotonic() < until, f"never seen: {states}"


def _events(state: dict[str, Any]) -> int:
    return sum(line.startswith("event ") for line in state.get("nvml", []))


def _wait_for_events(exporter: Exporter, clock: _Clock, count: int) -> None:
    """Events come from the driver by themselves."""

    def xid_count() -> int:
        report = exporter.observe(clock.monotonic() + 10).snapshot.nvml
        assert isinstance(report, Ok)
        return sum(xid.count for gpu in report.value.gpus for xid in gpu.xids)

    eventually(lambda: xid_count() == count)


def _drive(nvml: FakeNvml, state: list[str] | str, trace: Path | None) -> None:
    if isinstance(state, str):
        assert state in {"no library", "no driver"}
        nvml.unload()
    else:
        nvml.write([*state, *([f"system x trace={trace}"] if trace is not None else [])])


def _write_proc(procfs: Path, state: dict[str, Any], engines: LoopbackEngines) -> None:
    if procfs.exists():
        shutil.rmtree(procfs)
    memory = state.get("memory", {"total": 128, "available": 100})
    more = {"pid_namespace": state["pid_namespace"]} if "pid_namespace" in state else {}
    write_proc(
        procfs,
        [_process(entry, engines.sockets(entry["pid"])) for entry in state["processes"]],
        memory_total_kib=memory["total"] << 20,
        memory_available_kib=memory["available"] << 20,
        listeners=engines.table(),
        **more,
    )


def _sysfs(directory: Path, *, has_nvidia_device: bool) -> Path:
    """Write the PCI bus: a host bridge, and one of NVIDIA's devices."""
    for address, vendor in {
        "0000:00:00.0": "0x8086",
        **({"0000:17:00.0": "0x10de"} if has_nvidia_device else {}),
    }.items():
        device = directory / "bus/pci/devices" / address
        device.mkdir(parents=True)
        (device / "vendor").write_text(f"{vendor}\n")
    return directory


def _process(entry: dict[str, Any], sockets: Mapping[int, int]) -> Any:  # noqa: ANN401 - write_proc's own mapping
    return (
        {key: value for key, value in entry.items() if key not in {"cmd", "unreadable"}}
        | ({"argv": entry["cmd"].split()} if "cmd" in entry else {})
        | ({"sockets": sockets} if sockets else {})
    )
