"""The configuration and its defaults. `load` fills these from YAML; nothing else makes them but tests.

Sizes are bytes and times are seconds in here, "1000MiB" and "30s" in the file.
"""

from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import PurePath

from llmhost.model.process import Role
from llmhost.model.segment import SegmentKind

MIB = 1 << 20

# Known engines' usual service names; discovery finds the others by what they run. Globs alone: a name would be
# reported as missing on every host that does not have it.
DEFAULT_UNIT_PATTERNS = ("vllm*.service", "sglang*.service")


class PidNamespace(StrEnum):
    AUTO = "auto"  # outside the initial PID namespace, refuse to attribute anything
    TRUST = "trust"  # the operator says that the pids we see are the ones NVML and cgroups mean


@dataclass(frozen=True, slots=True, kw_only=True)
class Policy:
    """Thresholds, each in one place; all are exported as `llmhost_policy_*` so that rules compare, not repeat."""

    resident_bytes: int = 1000 * MIB  # memory of others on a GPU that is too much for a clean start
    segment_grace_seconds: float = 30.0  # a segment is stale when unheld for this long
    orphan_grace_seconds: float = 15.0  # a process is an orphan when in that condition for this long
    utilization_ratio: float = 0.92  # what vLLM asks for when its arguments do not say
    ready_seconds: float = 1800.0  # a load may always take this long


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitGpus:
    """The GPU set of the units that match, for units that do not say it themselves."""

    pattern: str
    gpus: tuple[str, ...]  # NVML indexes ("0", "0:3"), UUIDs or PCI bus ids


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitsConfig:
    patterns: tuple[str, ...] = DEFAULT_UNIT_PATTERNS  # globs over full service names
    discover: bool = True  # also watch what runs a known engine or holds GPU memory
    gpus: tuple[UnitGpus, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GpusConfig:
    expected: int | None = None  # None: the most seen since boot


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentNames:
    """A row that goes before the table of segment names."""

    pattern: str  # a glob over the name
    kind: SegmentKind


@dataclass(frozen=True, slots=True, kw_only=True)
class ShmConfig:
    kinds: tuple[SegmentNames, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessTitles:
    """A row that goes before the table of engines' process titles."""

    pattern: str  # a glob over the title, or over the command line with blanks between its words
    engine: str
    role: Role


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """A URL for a unit's metrics, instead of the address at which its process listens."""

    unit: str
    url: str  # of its metrics: "http://127.0.0.1:8000/metrics"; "/metrics" is added where there is no path
    token_file: PurePath | None = None  # what to send as bearer token


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectorsConfig:
    nvml: bool = True
    systemd: bool = True
    procfs: bool = True
    shm: bool = True
    engine: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class WebConfig:
    listen: str = ":10061"  # [HOST]:PORT; an empty host is every address
    deadline_seconds: float = 8.0  # a page is served by then, whatever hangs; below the scraper's timeout
    max_connections: int = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesConfig:
    max_per_family: int = 1000  # what is over is dropped and counted


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    units: UnitsConfig = field(default_factory=UnitsConfig)
    gpus: GpusConfig = field(default_factory=GpusConfig)
    policy: Policy = field(default_factory=Policy)
    pid_namespace: PidNamespace = PidNamespace.AUTO  # host.pid_namespace
    shm: ShmConfig = field(default_factory=ShmConfig)
    titles: tuple[ProcessTitles, ...] = ()  # processes.titles
    engines: tuple[EngineConfig, ...] = ()
    collectors: CollectorsConfig = field(default_factory=CollectorsConfig)
    web: WebConfig = field(default_factory=WebConfig)
    series: SeriesConfig = field(default_factory=SeriesConfig)
