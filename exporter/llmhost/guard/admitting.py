"""This guard among others: reads what they have let start, and records what it lets start itself."""

import logging
import os
import time
from pathlib import Path

from llmhost.assemble.sources import Sources
from llmhost.decide.guard.admissions import MOST_SECONDS
from llmhost.decide.guard.state import Admit
from llmhost.decide.guard.target import Target
from llmhost.guard.request import GuardRequest
from llmhost.model.admission import Admission
from llmhost.model.ids import ProcessId
from llmhost.runtime.bounded_call import BoundedCall
from llmhost.state.admissions import Admissions
from llmhost.state.driver_pause import boottime

log = logging.getLogger(__name__)

_ANSWER_SECONDS = 1.0


class Admitting:
    def __init__(self, request: GuardRequest, target: Target, sources: Sources) -> None:
        self._target = target
        self._sources = sources
        # A unit's own earlier admission is no other's: it is replaced.
        is_units = target.is_own or not target.command
        own = target.unit.name if target.unit is not None and is_units else f"process-{os.getpid()}"
        self._files = Admissions(
            request.run_directory,
            own,
            boot_id=sources.boot_id,
            is_alive=lambda process: sources.start_ticks(process.pid) == process.start_ticks,
            most_seconds=MOST_SECONDS,
        )
        self._answers = _answers(request.run_directory)

    def others(self) -> tuple[Admission, ...]:
        return self._files.others() if self._answers else ()

    def admit(self, admit: Admit) -> bool:
        """Record this start; False where another guard was faster."""
        if not self._answers:
            return True
        target = self._target
        process = None
        if target.command:  # which takes the place of this process
            process = ProcessId(os.getpid(), self._sources.start_ticks(os.getpid()) or 0)
        unit = target.unit if target.is_own else target.runs_in
        admission = Admission(
            at_boottime_seconds=boottime(),
            needed=admit.needed,
            any_gpus=admit.any_gpus,
            unit=unit,
            invocation_id=dict(target.environment).get("INVOCATION_ID", "") if unit is not None else "",
            process=process,
        )
        return self._files.admit(admission, admit.seen)


def _answers(run_directory: Path) -> bool:
    """Say whether the run directory answers. It is a tmpfs, unless something else is mounted there."""
    looking = BoundedCall(lambda: os.path.lexists(run_directory / "admissions"), name="llmhost-admissions")
    try:
        looking.result(time.monotonic() + _ANSWER_SECONDS)
    except TimeoutError:
        log.warning("what other guards have let start is not known: %s does not answer", run_directory)
        return False
    return True
