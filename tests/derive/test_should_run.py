"""Units that should run, were stopped on purpose, or are unknown."""

from dataclasses import replace

import pytest
from tests.fakes.values import ended, settings, started, unit

from llmhost.derive.should_run import should_run
from llmhost.model.history.unit_history import UnitHistory
from llmhost.model.reading import Failed, NotApplicable, Ok
from llmhost.model.unit import Relative


@pytest.mark.parametrize(
    ("active", "sub", "file_state", "answer"),
    [
        ("active", "running", "disabled", True),
        ("activating", "auto-restart", "disabled", True),
        ("failed", "failed", "disabled", True),
        ("inactive", "dead", "disabled", False),
        ("inactive", "dead", "static", False),
        ("inactive", "dead", "", False),
        ("inactive", "dead", "enabled", True),  # not run since boot
    ],
)
def test_what_is_up_or_failing_or_enabled_is_wanted(active: str, sub: str, file_state: str, answer: bool) -> None:
    assert should_run(unit(active=active, sub=sub, unit_file_state=file_state), None) == Ok(answer)


def test_an_enabled_unit_that_ran_and_ended_well_may_have_been_stopped_or_have_died() -> None:
    ended = unit(active="inactive", sub="dead", unit_file_state="enabled", inactive_enter_monotonic=60.0)
    assert isinstance(should_run(ended, None), Failed)


def test_a_unit_that_does_not_exist_is_neither_wanted_nor_stopped() -> None:
    missing = unit(active="inactive", sub="dead", load_state="not-found", unit_file_state="")
    assert isinstance(should_run(missing, None), NotApplicable)


ENDED = unit(active="inactive", sub="dead", unit_file_state="enabled", inactive_enter_monotonic=60.0)


def record(*, asked: bool | None, stopped: bool = False, invocation: str = "a") -> UnitHistory:
    last = started("a", end=ended(result="success", seconds=50.0, asked=asked))
    return UnitHistory(last_seen_at=0.0, invocation_id=invocation, stopped=stopped, starts=(last,))


def test_an_enabled_unit_should_run_until_it_is_stopped() -> None:
    assert should_run(ENDED, record(asked=False)) == Ok(True)  # its worker died, and it ended with exit 0
    assert should_run(ENDED, record(asked=True, stopped=True)) == Ok(False)
    assert isinstance(should_run(ENDED, record(asked=None)), Failed)  # while nobody watched


def test_one_that_is_not_enabled_was_wanted_for_that_run() -> None:
    disabled = replace(ENDED, unit_file_state="disabled")
    assert should_run(disabled, record(asked=False)) == Ok(False)


def test_a_stop_that_ends_in_failure_is_a_stop_and_a_refused_start_is_none() -> None:
    failed = replace(ENDED, active_state="failed", sub_state="failed", result="exit-code")
    assert should_run(failed, record(asked=True, stopped=True)) == Ok(False)
    assert should_run(failed, record(asked=False)) == Ok(True)
    refused = replace(failed, result="start-limit-hit")
    assert should_run(refused, record(asked=True, stopped=True)) == Ok(True)


def test_a_stop_in_an_earlier_boot_does_not_count() -> None:
    not_yet = replace(ENDED, inactive_enter_monotonic=None, settings=settings("vllm serve m"))
    before = record(asked=True, stopped=True, invocation="")
    assert should_run(not_yet, before) == Ok(True)
    # in this boot it does, also where systemd has forgotten the run with the unit
    assert should_run(not_yet, record(asked=True, stopped=True)) == Ok(False)
    assert isinstance(should_run(not_yet, record(asked=None)), Failed)


def test_a_job_that_has_done_its_work_is_neither_wanted_nor_stopped() -> None:
    oneshot = replace(ENDED, settings=replace(settings("pull-models"), service_type="oneshot"))
    assert isinstance(should_run(oneshot, record(asked=False)), NotApplicable)


def wanted_by(*relatives: tuple[str, str, int], relation: str = "WantedBy") -> tuple[Relative, ...]:
    return tuple(
        Relative(name=name, relation=relation, active_state=state, sub_state="", job=job)
        for name, state, job in relatives
    )


TARGET, OFF, STARTS, UNKNOWN = (
    ("t.target", state, job) for state, job in (("active", 0), ("inactive", 0), ("inactive", 7), ("", 0))
)


@pytest.mark.parametrize(
    ("file_state", "relatives", "answer"),
    [
        ("generated", wanted_by(TARGET), True),  # a Quadlet with WantedBy=
        ("generated", (), False),  # and one without
        ("static", wanted_by(TARGET), True),
        ("static", wanted_by(TARGET, relation="RequiredBy"), True),
        ("static", wanted_by(TARGET, relation="BoundBy"), True),
        ("static", wanted_by(TARGET, relation="UpheldBy"), True),
        ("static", wanted_by(TARGET, relation="PartOf"), False),  # it stops this one, and starts nothing
        ("static", wanted_by(TARGET, relation="TriggeredBy"), False),  # it starts it when its time comes
        ("static", wanted_by(OFF), False),
        ("static", wanted_by(OFF, TARGET), True),
        ("disabled", wanted_by(TARGET), True),  # by a drop-in of the target
        ("alias", wanted_by(TARGET), True),
        ("indirect", wanted_by(TARGET), True),
        ("linked", (), False),
        ("linked-runtime", wanted_by(TARGET), True),
        ("transient", (), False),
        ("masked", wanted_by(TARGET), True),  # since it was loaded: the mask counts once systemd has read it
        ("enabled-runtime", (), True),
        ("enabled", wanted_by(OFF), True),  # in a target that nobody starts: it was started itself
        ("generated", wanted_by(OFF), True),
        ("enabled", wanted_by(STARTS), True),  # at boot: it is active once all has started
        ("enabled", wanted_by(OFF, relation="PartOf"), True),
        ("enabled", wanted_by(OFF, UNKNOWN), True),
        ("static", wanted_by(UNKNOWN, TARGET), True),
    ],
)
def test_a_unit_is_wanted_by_what_is_up_and_else_by_being_enabled(
    file_state: str, relatives: tuple[Relative, ...], answer: bool
) -> None:
    found = replace(ENDED, unit_file_state=file_state, relatives=relatives)
    assert should_run(found, record(asked=False)) == Ok(answer)
    assert should_run(found, record(asked=True, stopped=True)) == Ok(False)


def test_one_that_is_enabled_in_a_target_that_nobody_starts_is_not_wanted_before_it_has_run() -> None:
    never_run = replace(ENDED, inactive_enter_monotonic=None, relatives=wanted_by(OFF))
    assert should_run(never_run, None) == Ok(False)


def test_it_is_unknown_whether_a_unit_is_wanted_by_one_of_which_nothing_is_known() -> None:
    found = replace(ENDED, unit_file_state="static", relatives=wanted_by(OFF, UNKNOWN))
    assert isinstance(should_run(found, record(asked=False)), Failed)
    assert should_run(found, record(asked=True, stopped=True)) == Ok(False)


@pytest.mark.parametrize("file_state", ["enabled", "static", ""])
def test_one_that_systemd_stopped_as_another_died_should_run_like_one_that_failed(file_state: str) -> None:
    end = replace(ended(result="success", asked=False), ended_with="fabric.service")
    history = UnitHistory(last_seen_at=0.0, invocation_id="a", starts=(started("a", end=end),))
    assert should_run(replace(ENDED, unit_file_state=file_state), history) == Ok(True)
    assert should_run(replace(ENDED, unit_file_state=file_state, load_state="masked"), history) == Ok(False)


@pytest.mark.parametrize("skipped", [{"condition_met": False}, {"result": "exec-condition"}])
def test_a_start_that_systemd_skips_is_no_failure(skipped: dict[str, object]) -> None:
    assert should_run(replace(ENDED, **skipped), record(asked=False)) == Ok(False)  # type: ignore[arg-type]
    assert should_run(replace(ENDED, condition_met=True), record(asked=False)) == Ok(True)
    never_run = replace(ENDED, inactive_enter_monotonic=None, **skipped)  # type: ignore[arg-type]
    assert should_run(never_run, None) == Ok(False)
