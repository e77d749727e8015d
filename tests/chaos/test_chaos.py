"""Each start is counted once, whatever happens: in some chaos. `make chaos` goes on for longer."""

from tests.chaos.chaos import Chaos
from tests.fakes.booted import needs_boot

_TIMES = 40  # about 12 s
_SEED = 119


def test_in_chaos_each_start_is_counted_once() -> None:
    needs_boot()
    with Chaos(_SEED) as chaos:
        chaos.run(actions=_TIMES)
        outcomes = chaos.outcomes()
    for action in ("start", "stop", "restart", "kill", "daemon-reload", "daemon-reexec", "bus"):
        assert chaos.done[action], f"another seed is wanted: no {action} in {_TIMES}"
    report = "\n".join(map(str, outcomes))
    assert all(outcome.is_right for outcome in outcomes), report
    # Where a run had ended with success, reset-failed hides one automatic restart each time.
    hidden = chaos.done["reset-failed"]
    assert all(-hidden <= each.automatic - each.automatic_true <= each.doubled for each in outcomes), report
    assert sum(outcome.starts for outcome in outcomes) > 100, report
    by_unit = {outcome.unit: outcome for outcome in outcomes}
    assert by_unit["c-missing.service"].not_started == 0, "it was forked, and failed to become the program"
    if by_unit["c-pre.service"].starts > 20:
        assert by_unit["c-pre.service"].not_started > 0, report
