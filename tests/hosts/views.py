"""The view of a written host, from which commands and pages are made."""

from dataclasses import replace

from tests.hosts.written import EPOCH, ObservedHost

from llmhost.derive.host_view import HostView, host_view


def view_of(observed: ObservedHost) -> HostView:
    """Observe once more, at a fixed time of day; engines have done nothing in the second before."""
    observation = observed.observe()
    at = replace(observation.snapshot, at=EPOCH)
    return host_view(at, observation.history, observed.config, before=replace(at, at_monotonic=at.at_monotonic - 1))
