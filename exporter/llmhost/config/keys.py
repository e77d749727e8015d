"""Every key of the config file, once: its path in the file, its attribute in `Config`, and the type of its value."""

from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any, Final

from llmhost.config import value_types
from llmhost.config.nodes import BadNodeError, Node
from llmhost.config.quantities import format_size, format_time, parse_size, parse_time
from llmhost.config.schema import EngineConfig, PidNamespace, ProcessTitles, SegmentNames, UnitGpus
from llmhost.config.unit_pattern import service_name, service_pattern
from llmhost.config.value_types import ValueType
from llmhost.model.endpoint import parse_metrics_url
from llmhost.model.listen import parse_listen
from llmhost.model.process import Role
from llmhost.model.segment import SegmentKind


@dataclass(frozen=True, slots=True)
class Key:
    path: str  # SECTION.NAME, as in the file; SECTION alone where the section is the value
    attribute: str  # under Config
    type: ValueType[Any]

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    @property
    def name(self) -> str:
        return self.path.partition(".")[2]  # "" where the section is the value


def _path(text: str) -> PurePosixPath | None:
    return PurePosixPath(text) if text.isprintable() and text.startswith("/") and not text.endswith("/") else None


def _unit_gpus(node: Node) -> tuple[UnitGpus, ...]:
    """Read {PATTERN: GPUS} as [{pattern: PATTERN, gpus: GPUS}]."""
    if not isinstance(node.value, dict):
        raise value_types.wrong_type(node, 'a mapping of unit patterns to GPUs, such as {"vllm-a.service": [0, 1]}')
    rows: list[Node] = []
    for pattern, gpus in node.value.items():
        if gpus.value == []:
            raise BadNodeError(gpus, "an empty list of GPUs; remove the line to leave the GPUs to be found out")
        row = {"pattern": Node(gpus.path, gpus.line, pattern), "gpus": gpus}
        rows.append(Node(gpus.path, gpus.line, row))
    return _UNIT_GPUS.parse(Node(node.path, node.line, rows))


_UNIT_PATTERN = value_types.scalar("a unit pattern", service_pattern)
_GPU = value_types.matching(
    'a GPU: an index such as 0 or "0:3", a UUID such as "GPU-…", or a PCI bus id',
    # an index with ":N" for a MIG instance; a bus id with a domain of 0, 4 or 8 digits
    r"(?:0|[1-9][0-9]{0,3})(?::(?:0|[1-9][0-9]?))?"
    r"|(?:GPU|MIG)-[0-9A-Za-z][0-9A-Za-z/-]*"
    r"|(?:(?:[0-9A-Fa-f]{4}){1,2}:)?[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]",
)
_UNIT_GPUS = value_types.list_of(
    value_types.record(UnitGpus, pattern=_UNIT_PATTERN, gpus=value_types.list_of(_GPU)),
    identity=lambda gpus: gpus.pattern,
)
_SEGMENT_GLOB = value_types.matching(
    'a glob over segment names (*, ?, [ab], [!ab]), without "/"', r"(?:[^\[/]|\[(?!\^)!?[^\]/]+\])+"
)
_SEGMENT_NAMES = value_types.list_of(
    value_types.record(SegmentNames, pattern=_SEGMENT_GLOB, kind=value_types.choice(SegmentKind)),
    identity=lambda names: names.pattern,
)
_TITLE_GLOB = value_types.matching(
    "a glob over process titles or command lines (*, ?, [ab], [!ab])", r"(?:[^\[]|\[(?!\^)!?[^\]]+\])+"
)
_ENGINE = value_types.matching(
    "an engine's name of a-z, 0-9, _, . and -, at most 64 characters", r"[a-z0-9][a-z0-9_.-]{0,63}"
)
_PROCESS_TITLES = value_types.list_of(
    value_types.record(ProcessTitles, pattern=_TITLE_GLOB, engine=_ENGINE, role=value_types.choice(Role)),
    identity=lambda titles: titles.pattern,
)
_ENGINES = value_types.list_of(
    value_types.record(
        EngineConfig,
        unit=value_types.scalar("the name of a service", service_name),
        url=value_types.checked("a URL", parse_metrics_url),
        token_file=value_types.scalar("the absolute path of a file", _path),
    ),
    # scheme, host and port tell the series of a unit's servers apart
    identity=lambda engine: f"{parse_metrics_url(engine.url).endpoint} of {engine.unit}",
)
_FLAG = value_types.flag()
_GRACE = value_types.quantity(parse_time, format_time, "100ms", "1d")  # with 0s, one observation alone would decide

KEYS: Final = (
    Key("units.patterns", "units.patterns", value_types.list_of(_UNIT_PATTERN)),
    Key("units.discover", "units.discover", _FLAG),
    Key("units.gpus", "units.gpus", ValueType(_unit_gpus, lambda rows: {row.pattern: list(row.gpus) for row in rows})),
    Key("gpus.expected", "gpus.expected", value_types.optional(value_types.count(0, 1024))),
    Key("policy.resident", "policy.resident_bytes", value_types.quantity(parse_size, format_size, "0B", "1024TiB")),
    Key("policy.segment_grace", "policy.segment_grace_seconds", _GRACE),
    Key("policy.orphan_grace", "policy.orphan_grace_seconds", _GRACE),
    Key("policy.utilization", "policy.utilization_ratio", value_types.ratio()),
    Key("policy.ready", "policy.ready_seconds", value_types.quantity(parse_time, format_time, "1s", "7d")),
    Key("host.pid_namespace", "pid_namespace", value_types.choice(PidNamespace)),
    Key("shm.kinds", "shm.kinds", _SEGMENT_NAMES),
    Key("processes.titles", "titles", _PROCESS_TITLES),
    Key("engines", "engines", _ENGINES),
    Key("collectors.nvml", "collectors.nvml", _FLAG),
    Key("collectors.systemd", "collectors.systemd", _FLAG),
    Key("collectors.procfs", "collectors.procfs", _FLAG),
    Key("collectors.shm", "collectors.shm", _FLAG),
    Key("collectors.engine", "collectors.engine", _FLAG),
    Key("web.listen", "web.listen", value_types.checked('a listen address, such as ":10061"', parse_listen)),
    Key("web.deadline", "web.deadline_seconds", value_types.quantity(parse_time, format_time, "100ms", "10m")),
    Key("web.max_connections", "web.max_connections", value_types.count(1, 4096)),
    Key("series.max_per_family", "series.max_per_family", value_types.count(1, 1_000_000)),
)
