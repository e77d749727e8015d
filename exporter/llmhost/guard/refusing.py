"""Leaving the guard with a code that refuses the start, whatever SuccessExitStatus= of the unit says."""

import logging
import time

from llmhost.assemble.sources import Sources, guard_config
from llmhost.config.schema import Config
from llmhost.decide.guard.refusal import refusal_code
from llmhost.decide.guard.target import is_being_stopped
from llmhost.guard.ending_signals import ENDING_SIGNALS
from llmhost.model.ids import SYSTEM_MANAGER
from llmhost.model.process import Home
from llmhost.model.reading import Ok
from llmhost.model.unit import Unit

log = logging.getLogger(__name__)

_ASK_SECONDS = 2.0


def refusing(code: int, unit: Unit | None) -> int:
    """Give the exit code that refuses the start; 0 if systemd is stopping the unit, which must not fail then.

    `unit` is the one that this runs in, where systemd has told of it.
    """
    if unit is None or ENDING_SIGNALS.first:
        unit = _own_unit() or unit
    if unit is None or unit.settings is None:
        return code
    if is_being_stopped(unit):
        return 0
    found = refusal_code(code, unit.settings.success_exit_statuses)
    if found != code:
        log.info("the exit code is %d, as SuccessExitStatus= of %s has %d for success", found, unit.id.name, code)
    return found


def _own_unit() -> Unit | None:
    """Ask systemd about the unit that this runs in; None where it runs in none, or there is no answer."""
    sources = Sources()
    try:
        placement = sources.own_placement()
        if placement.home is not Home.SERVICE or placement.unit is None or placement.unit.manager != SYSTEM_MANAGER:
            return None
        sources.configure(guard_config(Config(), (placement.unit.name,)))
        deadline = time.monotonic() + _ASK_SECONDS
        reading = sources.units.answer(sources.units.ask(deadline), deadline)
    except OSError:
        return None
    finally:
        sources.close()
    units = reading.value.units if isinstance(reading, Ok) else ()
    return next((unit for unit in units if unit.id == placement.unit), None)
