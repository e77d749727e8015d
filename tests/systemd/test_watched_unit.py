"""States of a watched unit, and what it reports: each event in each state, written down by hand."""

from typing import Any

import pytest

from llmhost.model.unit import Unit
from llmhost.sources.systemd.properties.unit import UnreadableUnitError
from llmhost.sources.systemd.units.life_cycle import Event, WatchedState, next_state
from llmhost.sources.systemd.units.loaded_unit import SERVICE_INTERFACE, UNIT_INTERFACE
from llmhost.sources.systemd.units.watched_unit import WatchedUnit

# "-" is an event that is ignored.
TABLE = """
                 UNREAD         UNREAD_ABSENT  LOADED    ABSENT         UNLOADED  OUTDATED
PROPERTIES_READ  LOADED         LOADED         LOADED    LOADED         LOADED    LOADED
NOT_LOADED       UNREAD_ABSENT  UNREAD_ABSENT  ABSENT    ABSENT         ABSENT    ABSENT
FILE_READ        -              UNLOADED       -         UNLOADED       -         -
READ_FAILED      UNREAD         UNREAD         OUTDATED  OUTDATED       OUTDATED  OUTDATED
CHANGED          -              -              LOADED    LOADED         LOADED    LOADED
LOADED           -              UNREAD         -         OUTDATED       OUTDATED  -
REMOVED          -              -              OUTDATED  ABSENT         -         OUTDATED
SIGNALS_LOST     -              -              UNREAD    UNREAD_ABSENT  UNREAD    UNREAD
"""
A, B = bytes.fromhex("aa" * 16), bytes.fromhex("bb" * 16)
LOADED: dict[str, Any] = {
    "Id": "vllm.service",
    "LoadState": "loaded",
    "UnitFileState": "enabled",
    "ActiveState": "active",
    "SubState": "running",
    "NRestarts": 1,
    "RestartUSec": 10_000_000,
    "InvocationID": A,
}


class Reports:
    """A unit, and the reports of it in short: state, InvocationID's first, gap."""

    def __init__(self, *, is_new: bool = False) -> None:
        self.now = 0.0
        self.all: list[tuple[str, str, bool]] = []
        self.units: list[Unit] = []
        self.unit = WatchedUnit("vllm.service", is_new=is_new, on_change=self._take, clock=lambda: self.now)

    def _take(self, unit: Unit, gap: bool) -> None:
        self.units.append(unit)
        state = unit.active_state if unit.load_state == "loaded" else unit.load_state
        self.all.append((state, unit.invocation_id[:1], gap))

    def changed(self, **properties: object) -> None:
        """Signal a pair, as systemd does."""
        self.unit.changed(SERVICE_INTERFACE, {})
        self.unit.changed(UNIT_INTERFACE, properties)

    def not_loaded(self, file_state: str | None) -> None:
        self.unit.not_loaded()
        self.unit.file_read(file_state)


def test_each_event_in_each_state_leads_where_the_table_says() -> None:
    header, *rows = TABLE.strip("\n").splitlines()
    states = [WatchedState[name] for name in header.split()]
    assert states == list(WatchedState)
    assert [row.split()[0] for row in rows] == [event.name for event in Event]
    for row in rows:
        event, *next_names = row.split()
        for state, name in zip(states, next_names, strict=True):
            assert next_state(state, Event[event]) == (None if name == "-" else WatchedState[name]), (state, event)


def test_the_first_read_has_a_gap_and_a_later_one_none() -> None:
    reports = Reports()
    reports.changed(InvocationID=B)  # of no use before the read
    reports.unit.properties_read(LOADED)
    reports.unit.properties_read(LOADED)
    reports.unit.properties_read({**LOADED, "NRestarts": 2})
    assert reports.all == [("active", "a", True), ("active", "a", False)]
    reports.unit.signals_lost()
    reports.changed(InvocationID=B)
    reports.unit.properties_read({**LOADED, "InvocationID": B})
    assert reports.all[2:] == [("active", "b", True)]


def test_half_a_pair_is_held_back_until_the_other_or_for_a_moment() -> None:
    reports = Reports()
    reports.unit.properties_read(LOADED)
    reports.unit.changed(SERVICE_INTERFACE, {"MainPID": 7, "NRestarts": 2})
    reports.now = 0.1
    known = reports.unit.unit()
    assert known is not None
    assert (known.main_pid, known.nrestarts) == (0, 1)
    reports.unit.changed(UNIT_INTERFACE, {"SubState": "start"})
    assert [(unit.main_pid, unit.nrestarts, unit.sub_state) for unit in reports.units] == [
        (0, 1, "running"),
        (7, 2, "start"),
    ]
    reports.unit.changed(UNIT_INTERFACE, {"MainPID": 0})
    reports.unit.changed(UNIT_INTERFACE, {"SubState": "running", "LoadState": "never signalled"})
    assert (reports.units[-1].main_pid, reports.units[-1].load_state) == (0, "loaded")
    reports.unit.changed(SERVICE_INTERFACE, {"NRestarts": 3})
    reports.now += 0.11  # the other half was never sent
    known = reports.unit.unit()
    assert known is not None
    assert known.nrestarts == 3
    assert reports.units[-1] == known


def test_a_unit_that_is_let_go_of_and_loaded_again_keeps_its_settings_and_nothing_else() -> None:
    reports = Reports()
    reports.unit.properties_read(LOADED)
    reports.unit.changed(SERVICE_INTERFACE, {"NRestarts": 5})
    reports.unit.removed()
    reports.now = 1.0
    before = reports.unit.unit()
    assert before is not None
    assert before.nrestarts == 1, "readers wait until its file is read"
    reports.changed(ActiveState="activating", SubState="start", InvocationID=B)
    assert reports.all == [("active", "a", True), ("stub", "", False), ("activating", "b", False)]
    again = reports.units[-1]
    assert again.nrestarts is None
    assert again.settings is not None
    assert again.settings.restart_delay_seconds == 10.0


def test_a_unit_that_is_loaded_and_let_go_of_before_it_can_be_read_has_no_settings() -> None:
    reports = Reports()
    reports.not_loaded("enabled")
    reports.changed(ActiveState="active", SubState="running", InvocationID=A)
    reports.unit.removed()
    assert reports.all == [("stub", "", True), ("active", "a", False), ("stub", "", False)]
    assert reports.units[1].settings is None
    assert reports.units[2].unit_file_state == "enabled"


def test_a_unit_that_went_and_came_without_a_signal_is_reported_gone_as_soon_as_that_is_signalled() -> None:
    """In a reload, systemd's signals of units that go and come say nothing."""
    reports = Reports()
    reports.unit.properties_read(LOADED)
    reports.unit.not_loaded()
    reports.unit.loaded(is_new=True)
    reports.unit.removed()
    assert reports.all == [("active", "a", True), ("stub", "", False)]
    reports.changed(ActiveState="activating", SubState="start", InvocationID=B)
    assert reports.all[2:] == [("activating", "b", False)]


def test_a_reader_in_between_the_first_pair_of_a_unit_that_is_loaded_again_gets_what_was_known_before() -> None:
    for was, known_before in (("active", "loaded"), ("inactive", "stub")):
        reports = Reports()
        reports.unit.properties_read(LOADED)
        if was == "active":
            reports.unit.removed()
        else:
            reports.not_loaded("enabled")
        reports.unit.loaded(is_new=True)
        reports.unit.changed(SERVICE_INTERFACE, {"MainPID": 7})
        known = reports.unit.unit()
        assert known is not None
        assert (known.load_state, known.active_state) == (known_before, was)
        reports.unit.changed(UNIT_INTERFACE, {"ActiveState": "activating", "SubState": "start", "InvocationID": B})
        assert (reports.units[-1].active_state, reports.units[-1].main_pid) == ("activating", 7)


@pytest.mark.parametrize("what", ["signal", "load"])
def test_a_file_that_was_read_of_a_unit_that_is_loaded_by_then_is_of_no_use(what: str) -> None:
    reports = Reports()
    reports.not_loaded("enabled")
    reports.unit.not_loaded()
    if what == "signal":
        reports.changed(ActiveState="active", SubState="running", InvocationID=B)
    else:
        reports.unit.loaded(is_new=False)
    reports.unit.file_read(None)
    assert not reports.unit.is_missing
    assert reports.all == [("stub", "", True), ("active", "b", False)][: 2 if what == "signal" else 1]
    known = reports.unit.unit()
    assert known is not None
    assert known.load_state == ("loaded" if what == "signal" else "stub"), "until it is read"


@pytest.mark.parametrize(
    ("file_state", "transient", "load_state"),
    [
        ("enabled", False, "stub"),
        ("masked", False, "masked"),
        ("transient", True, "not-found"),
        ("", False, "not-found"),
    ],
)
def test_a_removed_unit_is_reported_as_what_its_file_says(file_state: str, *, transient: bool, load_state: str) -> None:
    reports = Reports()
    reports.unit.properties_read({**LOADED, "UnitFileState": file_state, "Transient": transient})
    reports.unit.removed()
    reports.unit.removed()
    assert reports.all == [("active", "a", True), (load_state, "", False)]


def test_a_missing_unit_is_reported_only_after_another_report_or_where_it_is_watched_even_so() -> None:
    reports = Reports()
    reports.not_loaded(None)
    assert reports.unit.is_missing
    assert reports.unit.unit() is None
    assert reports.all == []
    reports.unit.report_missing()
    assert reports.all == [("not-found", "", True)]
    reports.unit.properties_read({**LOADED, "LoadState": "not-found", "ActiveState": "inactive"})
    assert reports.unit.is_missing
    assert reports.unit.unit() is None


def test_a_unit_that_runs_without_its_file_is_not_missing() -> None:
    reports = Reports()
    reports.unit.properties_read({**LOADED, "LoadState": "not-found"})
    assert not reports.unit.is_missing


def test_a_new_unit_is_reported_once_it_has_run_and_first_that_it_was_not_there() -> None:
    reports = Reports(is_new=True)
    reports.unit.properties_read({**LOADED, "InvocationID": b""})
    assert reports.all == []
    reports.changed(InvocationID=A)
    assert reports.all == [("stub", "", True), ("active", "a", False)]


def test_a_unit_becomes_new_only_before_it_is_read() -> None:
    reports = Reports()
    reports.unit.not_loaded()
    reports.unit.loaded(is_new=True)
    reports.unit.properties_read(LOADED)
    assert reports.all == [("stub", "", True), ("active", "a", True)]
    reports = Reports()
    reports.not_loaded(None)
    reports.unit.loaded(is_new=True)
    reports.unit.properties_read(LOADED)
    assert reports.all == [("active", "a", False)]


def test_a_unit_that_could_not_be_read_is_absent_until_a_signal_of_it() -> None:
    reports = Reports()
    reports.unit.properties_read(LOADED)
    reports.unit.read_failed("ENOMEM")
    assert (reports.unit.unit(), reports.unit.is_missing, reports.unit.unreadable) == (None, False, "ENOMEM")
    reports.changed(ActiveState="failed", SubState="failed")
    assert reports.all == [("active", "a", True), ("failed", "", False)]
    assert reports.unit.unreadable == "ENOMEM", "so it is read again"
    reports.unit.properties_read(LOADED)
    assert reports.unit.unreadable == ""


def test_properties_that_make_no_unit_are_an_error_for_readers_and_a_gap_in_the_reports() -> None:
    reports = Reports()
    reports.unit.properties_read({**LOADED, "ActiveState": 5})
    with pytest.raises(UnreadableUnitError, match=r"vllm\.service has no readable ActiveState"):
        reports.unit.unit()
    reports.unit.properties_read(LOADED)
    assert reports.all == [("active", "a", True)]
    unwatched = WatchedUnit("vllm.service")
    unwatched.properties_read({**LOADED, "SubState": ""})
    unwatched.changed(UNIT_INTERFACE, {"ActiveState": "hibernating", "SubState": "dreaming"})
    known = unwatched.unit()
    assert known is not None
    assert (known.active_state, known.sub_state) == ("hibernating", "dreaming"), "no systemd had these so far"


def test_nothing_is_reported_after_the_end() -> None:
    reports = Reports()
    reports.unit.properties_read(LOADED)
    reports.unit.stop_reports()
    reports.changed(InvocationID=B)
    reports.unit.removed()
    reports.not_loaded(None)
    assert reports.all == [("active", "a", True)]


def command(start: int) -> list[Any]:
    return ["/bin/true", ["/bin/true"], False, 0, start, 0, 0, 7, 0, 0]


def test_an_attempt_of_restart_mode_direct_has_the_times_of_its_first_process_and_of_when_it_was_seen_to_begin() -> (
    None
):
    reports = Reports()
    direct = {
        **LOADED,
        "RestartMode": "direct",
        "ExecCondition": [],
        "ExecStartPre": [command(5_000_000), command(6_000_000)],
        "ExecStart": [command(0)],
    }

    def times() -> tuple[float | None, float | None]:
        unit = reports.units[-1]
        return unit.first_process_monotonic, unit.begun_after_monotonic

    reports.unit.properties_read(direct)
    assert times() == (5.0, None)
    reports.changed(SubState="start", ActiveState="activating")
    assert times() == (5.0, None)
    # the next attempt, in the state of before: what was read of the commands is not of it
    reports.changed(InvocationID=B, SubState="auto-restart-queued", StateChangeTimestampMonotonic=8_000_000)
    assert times() == (None, 8.0)
    reports.changed(SubState="start-pre", StateChangeTimestampMonotonic=9_000_000)
    assert times() == (None, 8.0)
    # read again, and again after a daemon-reload, which forgets the commands' times
    now = {**direct, "InvocationID": B, "ActiveState": "activating", "SubState": "start-pre"}
    reports.unit.properties_read({**now, "ExecStartPre": [command(8_500_000), command(0)]})
    assert times() == (8.5, 8.0)
    reports.unit.properties_read({**now, "ExecStartPre": [command(0), command(0)], "NRestarts": 2})
    assert times() == (8.5, 8.0)


def test_of_another_restart_mode_those_times_are_not_told() -> None:
    reports = Reports()
    reports.unit.properties_read({**LOADED, "RestartMode": "normal", "ExecStart": [command(5_000_000)]})
    reports.changed(InvocationID=B, StateChangeTimestampMonotonic=8_000_000)
    assert {(unit.first_process_monotonic, unit.begun_after_monotonic) for unit in reports.units} == {(None, None)}
