"""Every key of the config file: where it stands in the file, where in `Config`, and which kind of value it has."""

from dataclasses import dataclass
from typing import Any, Final

from llmhost.config import kinds, rows
from llmhost.config.kinds import Kind
from llmhost.config.schema import PidNamespace


@dataclass(frozen=True, slots=True)
class Key:
    path: str  # SECTION.NAME, as in the file; SECTION alone where the section is the value
    attribute: str  # under Config
    kind: Kind[Any]

    @property
    def section(self) -> str:
        return self.path.partition(".")[0]

    @property
    def name(self) -> str:
        return self.path.partition(".")[2]  # "" where the section is the value


# A grace of zero would let one look decide that something is stale or orphaned.
_GRACE = kinds.time(lowest="100ms", highest="1d")

KEYS: Final = (
    Key("units.patterns", "units.patterns", kinds.unit_patterns()),
    Key("units.discover", "units.discover", kinds.flag()),
    Key("units.gpus", "units.gpus", kinds.unit_gpus()),
    Key("gpus.expected", "gpus.expected", kinds.optional(kinds.count(lowest=0, highest=1024))),
    Key("policy.resident", "policy.resident_bytes", kinds.size(lowest="0B", highest="1024TiB")),
    Key("policy.segment_grace", "policy.segment_grace_seconds", _GRACE),
    Key("policy.orphan_grace", "policy.orphan_grace_seconds", _GRACE),
    Key("policy.utilization", "policy.utilization_ratio", kinds.ratio()),
    Key("policy.ready", "policy.ready_seconds", kinds.time(lowest="1s", highest="7d")),
    Key("host.pid_namespace", "pid_namespace", kinds.choice(PidNamespace)),
    Key("shm.kinds", "shm.kinds", rows.segment_names()),
    Key("processes.titles", "titles", rows.process_titles()),
    Key("engines", "engines", rows.engines()),
    Key("collectors.nvml", "collectors.nvml", kinds.flag()),
    Key("collectors.systemd", "collectors.systemd", kinds.flag()),
    Key("collectors.procfs", "collectors.procfs", kinds.flag()),
    Key("collectors.shm", "collectors.shm", kinds.flag()),
    Key("collectors.engine", "collectors.engine", kinds.flag()),
    Key("web.listen", "web.listen", kinds.listen()),
    Key("web.deadline", "web.deadline_seconds", kinds.time(lowest="100ms", highest="10m")),
    Key("web.max_connections", "web.max_connections", kinds.count(lowest=1, highest=4096)),
    Key("series.max_per_family", "series.max_per_family", kinds.count(lowest=1, highest=1_000_000)),
)
SECTIONS: Final = tuple(dict.fromkeys(key.section for key in KEYS))
