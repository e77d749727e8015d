"""The guard's first moment: what cannot wait until all is imported."""

from llmhost.guard.ending_signals import ENDING_SIGNALS


def begin() -> None:
    """Note the signals of a stop, and ask systemd for the time that the imports take: TimeoutStartSec= may be short."""
    ENDING_SIGNALS.note()
    from llmhost.sources.sd_notify import Notifier

    Notifier().extend(10.0)
