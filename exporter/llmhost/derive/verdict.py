"""What a start finds on its GPUs: clean, or memory of others in the way."""

from collections.abc import Mapping
from dataclasses import dataclass

from llmhost.config.schema import Config
from llmhost.derive.ledger.ledger import Ledger
from llmhost.derive.ledger.record import InTheWay, Verdict
from llmhost.model.ids import GpuUuid, UnitId
from llmhost.model.reading import Cause, Failed, Reading
from llmhost.model.snapshot import Snapshot
from llmhost.model.unit import Unit


@dataclass(frozen=True, slots=True, kw_only=True)
class Obstacle:
    """One holder in the way, for the log; pid 0 and "" for memory that nobody holds."""

    uuid: GpuUuid
    gpu: str  # NVML's index
    kind: str
    pid: int
    command: str  # comm, or the title of an engine's process
    unit: UnitId | None
    used_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    verdict: Verdict  # CLEAN or RESIDENT
    in_the_way: tuple[InTheWay, ...]  # summed per GPU and kind, also where it is below the threshold
    obstacles: tuple[Obstacle, ...]  # the same one by one, the largest first


def judge(
    snapshot: Snapshot,
    unit: Unit,
    used_at_start: Mapping[GpuUuid, int],
    config: Config,
    ledger: Ledger,
) -> Reading[Judgement]:
    """Judge a start from what was read for it; Failed where that does not tell.

    `unit` is the unit as it was when its main process started, whatever the snapshot says of it by now; `used_at_start`
    is the memory in use as read right then, which counts where it differs from the snapshot's.
    """
    del snapshot, unit, used_at_start, config, ledger
    return Failed(Cause.UNKNOWN, "not built yet")
