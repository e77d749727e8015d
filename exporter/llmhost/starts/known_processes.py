"""The processes that were read last, for as long as they are those that hold GPU memory."""

from llmhost.collect.pending_reading import Asked
from llmhost.collect.worker import Clock, Worker
from llmhost.model.gpu import NvmlReport
from llmhost.model.process import ProcessTable
from llmhost.model.reading import NotApplicable, Ok, Reading

_FRESH_SECONDS = 5.0
_KEPT_SECONDS = 10.0


class KnownProcesses:
    """For use by one thread. Reading all processes of a host takes far longer than reading its memory."""

    def __init__(self, worker: Worker[ProcessTable], clock: Clock, *, seconds: float) -> None:
        self._clock = clock
        self._tables = Asked(worker, clock, seconds=seconds)
        self._table: Reading[ProcessTable] = NotApplicable("not asked for yet")

    def read(self) -> Reading[ProcessTable] | None:
        """Read them anew; None while that is under way."""
        table = self._tables.take()
        if table is not None:
            self._table = table
        return table

    def fitting(self, report: NvmlReport) -> Ok[ProcessTable] | None:
        """Give those that were read last if these lists have the same: what lived then is there, and nothing else."""
        known = self._table
        if not isinstance(known, Ok):
            return None
        if self._age_seconds(known.value) > _FRESH_SECONDS:
            newer = self._tables.take()  # so that it is there before this is too old
            if isinstance(newer, Ok):
                known = self._table = newer
        if self._age_seconds(known.value) > _KEPT_SECONDS:
            return None
        table = known.value
        fits = all(
            holder.process is None or (table.of(holder.process) is not None) == holder.alive
            for gpu in report.gpus
            if isinstance(gpu.holders, Ok)
            for holder in gpu.holders.value
        )
        return known if fits else None

    def _age_seconds(self, table: ProcessTable) -> float:
        return self._clock.monotonic() - (table.read_at_monotonic or 0.0)
