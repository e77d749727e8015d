"""What a command has to go by on a written host."""

from dataclasses import replace

from tests.hosts.written import EPOCH, Seen

from llmhost.derive.facts import derive
from llmhost.derive.host_view import HostView
from llmhost.derive.rates import rates


def look_of(seen: Seen) -> HostView:
    """Look again, at a second of its own on the calendar; engines have done nothing in the second before."""
    observation = seen.observe()
    at = replace(observation.snapshot, at=EPOCH)
    return HostView(
        snapshot=at,
        facts=derive(at, seen.config, observation.history),
        history=observation.history,
        policy=seen.config.policy,
        gpus_expected=seen.config.gpus.expected,
        rates=rates(replace(at, at_monotonic=at.at_monotonic - 1), at),
    )
