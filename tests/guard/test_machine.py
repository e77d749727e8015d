"""The guard's state machine, by the tables of waits.py."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from tests.fakes.values import GIB, gpu, memory, report
from tests.guard.steps import FAILS, HOST_READ, KNOWN, OWN, lines_of, played, shown, starting, state, used
from tests.guard.waits import TABLES

from llmhost.decide.guard.machine import step
from llmhost.decide.guard.state import Ask, Finish, Inputs, Say, Topic
from llmhost.decide.guard.target import Target
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.reading import Ok
from llmhost.views.guard.lines import log_line, status_line


@pytest.mark.parametrize("name", TABLES)
def test_what_comes_when_and_what_follows(name: str) -> None:
    played(*TABLES[name])


PREFIXES = [(name, length) for name, (_, rows) in TABLES.items() for length in range(len(rows))]


@pytest.mark.parametrize(("name", "length"), PREFIXES)
def test_a_signal_ends_every_prefix_of_a_wait_and_starts_nothing(name: str, length: int) -> None:
    begin, rows = TABLES[name]
    before = played(begin, rows[:length])
    now, inputs, _ = rows[length]
    after, actions = step(before, Inputs(at=1e9 + now, **{**inputs, "ended_by": "SIGTERM"}), now)
    say, *more = actions
    assert isinstance(say, Say)
    assert (say.topic, say.status) == (Topic.TERMINATED, before.status)
    known = before.status is not None and before.status.decision.verdict is not GuardVerdict.UNKNOWN
    end = Finish(verdict=GuardVerdict.HELD if known else GuardVerdict.UNKNOWN, terminated=True)
    if not begin.target.is_own:
        assert more == [end]
        return
    # In a unit's own start systemd has 3 s to confirm that it is stopping the unit.
    assert shown(more) in {"ask UNITS", ""}
    waiting, actions = step(after, Inputs(**starting()), now + 0.1)
    assert shown(actions) == "ask UNITS"
    _, actions = step(waiting, Inputs(**starting("stop-sigterm")), now + 0.2)
    assert actions == (replace(end, unit_is_stopping=True),)
    waiting, actions = step(waiting, Inputs(units=FAILS), now + 2.99)
    assert shown(actions) == "ask UNITS"
    _, actions = step(waiting, Inputs(), now + 3.01)
    assert actions == (end,)


@pytest.mark.parametrize("sub_state", ["stop", "stop-sigterm", "stop-sigkill", "final-sigterm", "final-watchdog"])
def test_a_stop_of_its_unit_ends_it_without_a_signal_too(sub_state: str) -> None:
    """KillSignal=SIGCONT, for one, ends nobody."""
    waiting = played(state(OWN), [(0.1, {"memory": used(70), **HOST_READ, **starting()}, "extend, ask LISTS")])
    _, actions = step(waiting, Inputs(**starting(sub_state)), 1.2)
    assert shown(actions) == "say TERMINATED (the stop of its unit), end held terminated unit_is_stopping"


def test_a_signal_that_comes_as_the_start_is_let_on_starts_nothing() -> None:
    after = played(*TABLES["free at once"])
    _, actions = step(after, Inputs(ended_by="SIGHUP"), 0.3)
    assert shown(actions) == "say TERMINATED (SIGHUP), end held terminated"


def test_it_asks_for_no_reading_that_is_under_way() -> None:
    for begin, rows in TABLES.values():
        state, pending = begin, set[str]()
        for now, inputs, _ in rows:
            pending -= {name.upper() for name in inputs}
            state, actions = step(state, Inputs(at=now, **inputs), now)
            asks = {action.query.name for action in actions if isinstance(action, Ask)}
            assert not asks & pending
            pending |= asks


def test_in_its_own_start_the_guards_environment_says_what_the_unit_gets() -> None:
    """From EnvironmentFile= too, which systemd does not tell of."""
    two = Ok(report([gpu(0, memory=memory(0)), gpu(1, memory=memory(70 * GIB))]))
    inputs = {"memory": two, **HOST_READ, **starting()}
    for number, expected in (("0", "extend, say FREE, end free"), ("1", "extend, ask LISTS")):
        own = replace(OWN, environment=(("CUDA_VISIBLE_DEVICES", number),))
        played(state(own, gpus=(), may_notify=True), [(0.1, inputs, expected)])


def test_a_command_by_hand_is_what_starts() -> None:
    """It asks for 0.9 of what is not reserved: 71.1 of 79 GiB."""
    vllm = ("/opt/vllm", "serve", "m", "--gpu-memory-utilization", "0.9")
    command = Target(unit=None, needs_systemd=False, command=vllm)
    begin = state(command, gpus=(), free_bytes=None)
    played(begin, [(0.1, {**KNOWN, "memory": used(7.8)}, "extend, say FREE, end free")])
    played(begin, [(0.1, {**KNOWN, "memory": used(8)}, "extend, ask LISTS")])


HOLDER = "GPU 0 (9.0 of 40.0 GiB free): 69.0 GiB python3 pid 50 (other, since T), 1.0 GiB with no visible owner"
NAMELESS = "waits for GPU 0 (9.0 of 40.0 GiB free)"
UNREAD = "see who has this memory, which could not be read until now: llmhost status, or nvidia-smi"
END = "end process 50, or give this unit other GPUs"
STUCK = "process 50 python3 of an ended run does not die, and only a GPU reset or a reboot ends it"
SILENT = "systemd does not tell of the unit (no bus (no socket))"
RESET = "reset the GPU (nvidia-smi --gpu-reset), or reboot"
DRIVER = "install or load the NVIDIA driver (modprobe nvidia), and see dmesg"


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("free at once", ["the start: free after 0.2 s: 40.0 GiB or more free on GPU 0"]),
        (
            "held to the end, with the holder's name",
            [
                f"the start waits for {HOLDER}; 0 s of 6 s",
                f"the start waits for {HOLDER}; 5 s of 6 s",
                f"the start: held after 6.0 s (--timeout): waits for {HOLDER}. Next step: {END}",
            ],
        ),
        (
            "without any time, the name is waited for, but not for long",
            [f"the start: held after 1.0 s (--timeout): {NAMELESS}. Next step: {UNREAD}"],
        ),
        (
            "memory settles for a second, and again after it has moved",
            [
                "the start waits for memory to stand still on GPU 0 (enough is free, rising 0.5 GiB/s); 2 s of 10 s",
                "the start: free after 2.1 s: 40.0 GiB or more free on GPU 0, steady for 1 s",
            ],
        ),
        (
            "a driver that never comes",
            [
                "the start waits for the driver: no driver; 0 s of 2 s",
                f"the start: cannot tell after 1.5 s (--timeout): waits for the driver: no driver. Next step: {DRIVER}",
            ],
        ),
        (
            "a driver that has not answered at all",
            ["the start: cannot tell after 4.0 s (--timeout): neither the driver nor systemd has answered yet"],
        ),
        (
            "shared memory",
            [
                "the start waits for shared memory (1.0 of 16.0 GiB free); 0 s of 100 s",
                "the start waits for the driver: no shm (it cannot be read how much is free); 1 s of 100 s",
                "the start: free after 1.2 s: 40.0 GiB or more free on GPU 0",
            ],
        ),
        (
            "a unit that systemd has not loaded",
            [
                "systemd has not loaded vllm.service, so what it runs is not known (systemctl show loads it)",
                "vllm.service: free after 0.3 s: 40.0 GiB or more free on GPU 0",
            ],
        ),
        (
            "no systemd for 3 s on end",
            ["vllm.service: cannot tell what is needed: systemd cannot be asked: no bus (no socket)"],
        ),
        (
            "remedies that are not done after 45 s",
            [
                "vllm.service waits for what ended runs have left to be gone (enough is free); 45 s of 100 s",
                "vllm.service: not done with what earlier runs have left after 45 s",
                "vllm.service: free after 45.5 s: 40.0 GiB or more free on GPU 0",
            ],
        ),
        (
            "remedies of which systemd proves nothing",
            [
                f"vllm.service waits to see what ended runs have left (enough is free): {SILENT}; 0 s of 100 s",
                f"vllm.service: {SILENT}: nothing can be told to be of an ended run",
                "vllm.service: free after 3.2 s: 40.0 GiB or more free on GPU 0",
            ],
        ),
        (
            "one that does not die",
            [
                f"vllm.service: held after 2.0 s (--timeout): {NAMELESS}; {STUCK}. Next step: {RESET}",
            ],
        ),
    ],
)
def test_the_lines_of_a_wait(name: str, expected: Sequence[str]) -> None:
    assert lines_of(*TABLES[name]) == expected


def test_systemctl_status_shows_what_is_waited_for_and_no_warning() -> None:
    state, rows = TABLES["a driver that never comes"]
    now, inputs, _ = rows[0]
    _, (_, say) = step(state, Inputs(**inputs), now)
    assert isinstance(say, Say)
    assert status_line(say) == "guard: waits for the driver: no driver"
    assert status_line(Say(topic=Topic.NOT_LOADED)) == ""
    assert log_line(Say(topic=Topic.TERMINATED, seconds=2.04, why="SIGTERM"), OWN) == (
        "vllm.service: ended by SIGTERM after 2.0 s: nothing was known yet"
    )
