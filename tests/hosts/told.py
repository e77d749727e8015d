"""What a command has to go by on a written host."""

from dataclasses import replace

from tests.hosts.written import EPOCH, Seen

from llmhost.derive.host_view import HostView, host_view


def look_of(seen: Seen) -> HostView:
    """Look again, at a second of its own on the calendar; engines have done nothing in the second before."""
    observation = seen.observe()
    at = replace(observation.snapshot, at=EPOCH)
    return host_view(at, observation.history, seen.config, before=replace(at, at_monotonic=at.at_monotonic - 1))
