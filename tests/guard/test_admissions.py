"""Two guards for one GPU: what one has admitted counts as used for the other, until it is used."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from tests.fakes.booted import booted_systemd
from tests.fakes.needs import needs_root
from tests.fakes.values import GIB, MIB, unit
from tests.guard.steps import FREE, HOST_READ, OWN, starting, state, units, used
from tests.guard.test_on_systemd import Host, host

from llmhost.decide.guard.admissions import awaited
from llmhost.decide.guard.holder_summary import GpuHolders, HolderSummary
from llmhost.decide.guard.machine import step
from llmhost.decide.guard.state import Admit, Ask, Finish, Inputs, Query, RemedyProgress, Say, Topic, Watch
from llmhost.decide.guard.target import Target
from llmhost.model.admission import Admission
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.ids import GpuUuid, ProcessId, UnitId
from llmhost.model.reading import Ok
from llmhost.model.unit import Unit
from llmhost.state import admissions as files
from llmhost.state.admissions import STUCK_SECONDS, Admissions
from llmhost.state.driver_pause import boottime
from llmhost.views.guard.lines import log_line

__all__ = ["booted_systemd", "host"]

A, B = UnitId("vllm-a.service"), UnitId("vllm-b.service")
GPU0, GPU1 = GpuUuid("GPU-0"), GpuUuid("GPU-1")
ADMITTED = Admission(at_boottime_seconds=1000.0, needed={GPU0: 80 * GIB}, unit=A, invocation_id="1")
UP = unit("vllm-a.service", "active", "running", invocation_id="1")


def holds(gib: float | None, began: float = 1001.0, of: UnitId | None = A) -> HolderSummary:
    size = None if gib is None else int(gib * GIB)
    return HolderSummary(
        pid=1, command="", kind="", unit=of, used_bytes=size, since_at=None, began_boottime_seconds=began
    )


def gib(
    *admissions: Admission,
    on: Mapping[GpuUuid, Sequence[HolderSummary]] | None = None,
    told: Sequence[Unit] = (UP,),
    now: float = 1010.0,
) -> dict[str, list[float | None]]:
    """Give what is awaited on each GPU, in GiB."""
    holders = {uuid: GpuHolders(holders=tuple(each), unattributed_bytes=None) for uuid, each in (on or {}).items()}
    report = units(*told)["units"]
    found = awaited(admissions, holders, report, now, max_used_bytes=1000 * MIB)
    return {
        uuid: [None if each.awaited_bytes is None else each.awaited_bytes / GIB for each in listed]
        for uuid, listed in found.items()
    }


@pytest.mark.parametrize(
    ("on", "expected"),
    [
        ([], 80.0),
        ([holds(30)], 50.0),
        ([holds(30), holds(20)], 30.0),
        ([holds(79.5)], 0.5),
        ([holds(80)], 0.0),
        ([holds(90)], 0.0),
        ([holds(None)], 0.0),  # the driver does not say how much
        ([holds(30, began=990.0)], 80.0),  # of an ended run
        ([holds(30, of=B)], 80.0),
        ([holds(30, of=None)], 50.0),  # a container
        ([holds(30, began=990.0, of=None)], 80.0),  # an older one
        ([holds(30), holds(30, of=None)], 50.0),  # it is no container, so that one is another's
    ],
)
def test_what_its_own_processes_hold_is_awaited_no_more(on: list[HolderSummary], expected: float) -> None:
    assert gib(ADMITTED, on={GPU0: on}) == ({"GPU-0": [expected]} if expected else {})


@pytest.mark.parametrize(
    ("told", "now", "counts"),
    [
        ((replace(UP, active_state="activating", sub_state="start-pre"),), 1000.0, True),
        ((), 1010.0, True),  # systemd has not told yet
        ((unit("vllm-b.service"),), 1010.0, True),
        ((replace(UP, active_state="failed", sub_state="failed"),), 1010.0, False),
        ((replace(UP, active_state="inactive", sub_state="dead"),), 1010.0, False),
        ((replace(UP, load_state="not-found", active_state="inactive", sub_state="dead"),), 1010.0, False),
        ((replace(UP, active_state="deactivating", sub_state="stop-sigterm"),), 1010.0, False),
        ((replace(UP, active_state="activating", sub_state="auto-restart"),), 1010.0, False),
        ((replace(UP, invocation_id="2"),), 1010.0, False),
        ((replace(UP, invocation_id=""),), 1010.0, False),
        ((UP,), 1600.0, True),
        ((UP,), 1600.1, False),  # ten minutes
    ],
)
def test_it_counts_until_the_run_has_ended_or_is_old(told: tuple[Unit, ...], now: float, counts: bool) -> None:
    assert bool(gib(ADMITTED, told=told, now=now)) is counts


def test_an_admission_whose_guard_knew_no_invocation_counts_as_long_as_the_unit_is_up() -> None:
    unknown = replace(ADMITTED, invocation_id="")
    assert gib(unknown) == {"GPU-0": [80.0]}
    assert gib(unknown, told=[replace(UP, active_state="failed", sub_state="failed")]) == {}


@pytest.mark.parametrize("of", [None, A])
def test_a_command_holds_what_its_process_holds_which_is_as_old_as_its_guard(of: UnitId | None) -> None:
    """`llmhost guard -- COMMAND`, by hand and in a service: its own process holds 30 GiB, a child of it 20."""
    command = replace(ADMITTED, unit=of, process=ProcessId(1, 99000))
    on = [holds(30, began=990.0, of=of), replace(holds(20, of=of), pid=2)]
    assert gib(command, on={GPU0: on[:1]}) == {"GPU-0": [50.0]}
    assert gib(command, on={GPU0: on}) == {"GPU-0": [30.0]}
    assert gib(command, on={GPU0: [replace(on[0], pid=3)]}) == {"GPU-0": [80.0]}


def test_memory_of_a_container_is_taken_once() -> None:
    """Of two units that each run a container it cannot be told whose is which; their sum is right."""
    other = replace(ADMITTED, unit=B, at_boottime_seconds=1002.0)
    on = {GPU0: [holds(50, of=None), holds(80, began=1003.0, of=None)]}
    assert gib(ADMITTED, other, on={GPU0: on[GPU0][:1]}) == {"GPU-0": [30.0, 80.0]}
    assert gib(ADMITTED, other, on=on) == {"GPU-0": [80.0]}


def test_an_unknown_need_counts_until_something_is_held() -> None:
    unknown = replace(ADMITTED, needed={GPU0: None})
    assert gib(unknown) == {"GPU-0": [None]}
    assert gib(unknown, now=1120.0) == {"GPU-0": [None]}
    assert gib(unknown, now=1121.0) == {}, "it may never take enough to be seen"
    assert gib(unknown, on={GPU0: [holds(0.5)]}) == {"GPU-0": [None]}
    assert gib(unknown, on={GPU0: [holds(1)]}) == {}


def test_on_unknown_gpus_it_counts_on_all_until_one_has_all() -> None:
    anywhere = replace(ADMITTED, needed={GPU0: 80 * GIB, GPU1: 80 * GIB}, any_gpus=True)
    assert gib(anywhere, on={GPU0: [holds(30)]}) == {"GPU-0": [50.0], "GPU-1": [80.0]}
    assert gib(anywhere, on={GPU0: [holds(80)]}) == {}
    assert gib(replace(anywhere, any_gpus=False), on={GPU0: [holds(80)]}) == {"GPU-1": [80.0]}


def seconds(now: float) -> float:
    """Give the same on CLOCK_BOOTTIME."""
    assert isinstance(HOST_READ["host"], Ok)
    return now + float(HOST_READ["host"].value.boottime_ahead_seconds)


def test_a_start_that_would_find_too_little_waits_and_goes_on_once_the_others_run_has_ended() -> None:
    """1 GiB of 80 is reserved; of the 79 the other was let have 40, and this one needs 40."""
    other = replace(ADMITTED, needed={GPU0: 40 * GIB}, at_boottime_seconds=seconds(0.0))
    inputs = {**HOST_READ, **starting(), "memory": used(0), "admissions": (other,)}
    waiting, actions = step(state(OWN, timeout=100.0), Inputs(**inputs), 0.1)
    assert Watch(("vllm.service", "vllm-a.service")) in actions
    assert [action for action in actions if isinstance(action, Admit | Finish)] == []
    assert Ask(Query.UNITS) in actions
    running = Ok(replace(starting()["units"].value, units=(*starting()["units"].value.units, UP)))
    waiting, actions = step(waiting, Inputs(memory=used(0), units=running, admissions=(other,)), 1.1)
    (say,) = (action for action in actions if isinstance(action, Say))
    assert log_line(say, OWN) == (
        "vllm.service waits for GPU 0 (79.0 of 40.0 GiB free, 40.0 GiB awaited by vllm-a.service, let start 1 s ago)"
        "; 1 s of 27 s"
    )
    failed = replace(running.value, units=(*running.value.units[:1], replace(UP, active_state="failed")))
    _, actions = step(waiting, Inputs(memory=used(0), units=Ok(failed), admissions=(other,)), 1.2)
    admit, *_, end = actions[-3:]
    assert admit == Admit(needed={GPU0: 40 * GIB}, any_gpus=False, seen=(other,))
    assert end == Finish(verdict=GuardVerdict.FREE)


def test_other_gpus_and_memory_that_is_left_are_no_reason_to_wait() -> None:
    for needed in ({GPU1: 79 * GIB}, {GPU0: 39 * GIB}, {}):
        other = replace(ADMITTED, needed=needed, at_boottime_seconds=seconds(0.0))
        inputs = {**HOST_READ, **starting(), "memory": used(0), "admissions": (other,)}
        _, actions = step(state(OWN), Inputs(**inputs), 0.1)
        assert actions[-1] == Finish(verdict=GuardVerdict.FREE)


def test_a_command_does_not_wait_for_what_the_guard_of_its_own_service_has_let_start() -> None:
    before = replace(ADMITTED, at_boottime_seconds=seconds(0.0))
    command = Target(unit=None, needs_systemd=False, command=("vllm",), runs_in=A)
    other = replace(before, process=ProcessId(5, 1))  # another command of that service
    for given, ends in ((before, True), (other, False)):
        _, actions = step(state(command), Inputs(**{**HOST_READ, "memory": used(0), "admissions": (given,)}), 0.1)
        assert isinstance(actions[-1], Finish) is ends


def test_nothing_is_left_unsaid_where_another_guard_was_faster() -> None:
    ending = RemedyProgress(began=0.2, acting_since=0.5)
    inputs = {**HOST_READ, **starting(), "memory": used(0), "remedies": ending}
    waiting, _ = step(state(OWN, timeout=100.0, may_notify=True), Inputs(**inputs), 0.5)
    _, actions = step(waiting, Inputs(memory=used(0), remedies=ending), 45.5)
    kinds = [action.topic if isinstance(action, Say) else type(action) for action in actions]
    assert kinds[-4:] == [Topic.REMEDIES_LATE, Admit, Topic.FREE, Finish]


def test_only_what_this_guard_lets_start_is_recorded() -> None:
    """By hand, for a unit, it only answers; within the unit it does not, whatever name of it is given."""
    by_hand = replace(OWN, is_own=False)
    by_alias = replace(by_hand, unit=UnitId("alias.service"), runs_in=OWN.unit)
    for target, count in ((OWN, 1), (by_hand, 0), (by_alias, 1)):
        _, actions = step(state(target), Inputs(**{**HOST_READ, **starting(aliases=("alias.service",)), **FREE}), 0.1)
        assert len([action for action in actions if isinstance(action, Admit)]) == count


def test_two_units_that_are_started_together_for_one_gpu_are_not_both_let_on(host: Host) -> None:
    """The second waits until the first holds its memory, and then for that, until it is gone."""
    host.unit("vllm-a", "0")
    host.unit("vllm-b", "0")
    host.start("vllm-a", "vllm-b")
    first, second = winner(host, "vllm-a", "vllm-b")
    host.says(second, rf"waits for GPU 0 \(9\d\.\d of 85\.5 GiB free, 85\.5 GiB awaited by {first}\.service, let start")
    pid = host.booted.show(f"{first}.service", "MainPID")["MainPID"]
    host.use({0: "30G"}, f"proc 0 {pid} mem=29G")
    host.says(second, rf"65\.0 of 85\.5 GiB free, 56\.5 GiB awaited by {first}\.service")
    host.use({0: "87G"})
    host.holds(f"proc 0 {pid} mem=86G")
    host.says(second, rf"\(8\.0 of 85\.5 GiB free\): 86\.0 GiB sleep pid {pid} of {first}\.service \(current")
    host.holds()
    host.use({0: "600M"})
    host.booted.systemctl("stop", f"{first}.service")
    host.becomes(second, "running")


def winner(host: Host, one: str, other: str) -> tuple[str, str]:
    """Wait until one of them runs; give it, and the other, which still waits."""
    until = time.monotonic() + 120
    while (states := (host.state(one), host.state(other))).count("running") == 0:
        assert time.monotonic() < until, f"{states}: {host.log(one)}{host.log(other)}"
    assert sorted((host.state(one), host.state(other))) == ["running", "start-pre"], "and not both"
    return (one, other) if host.state(one) == "running" else (other, one)


def test_a_command_in_a_service_is_awaited_until_the_service_holds_its_memory(host: Host) -> None:
    """Its process is the guard's, which is older than the admission; a service's is no container's either."""
    host.unit("vllm-a", "0")
    guard = f"{sys.executable} -I -m llmhost guard --gpus 0 --need-free 0.9"
    text = host.booted.run(["cat", "/etc/systemd/system/vllm-a.service"]).stdout
    lines = [line for line in text.splitlines() if not line.startswith("ExecStart")]
    host.booted.write_unit("vllm-b.service", "\n".join((*lines, f"ExecStart={guard} -- sleep infinity")))
    host.booted.systemctl("daemon-reload")
    host.start("vllm-b")
    pid = host.booted.show("vllm-b.service", "MainPID")["MainPID"]
    until = time.monotonic() + 120
    while host.booted.run(["cat", f"/proc/{pid}/comm"]).stdout != "sleep\n":
        assert time.monotonic() < until
    host.start("vllm-a")
    host.says("vllm-a", r"85\.5 GiB awaited by vllm-b\.service, let start")
    host.use({0: "30G"}, f"proc 0 {pid} mem=29G")
    host.says("vllm-a", r"65\.0 of 85\.5 GiB free, 56\.5 GiB awaited by vllm-b\.service")


def test_one_that_dies_while_it_loads_is_awaited_no_more(host: Host) -> None:
    host.unit("vllm-a", "0", more="Restart=on-failure\nRestartSec=1h")
    host.unit("vllm-b", "0", more="Restart=on-failure\nRestartSec=1h")
    host.start("vllm-a", "vllm-b")
    first, second = winner(host, "vllm-a", "vllm-b")
    host.says(second, f"awaited by {first}")
    host.booted.systemctl("kill", "--signal=KILL", f"{first}.service")
    host.becomes(second, "running")


def test_units_for_other_gpus_or_for_a_part_of_one_start_at_once(host: Host) -> None:
    host.unit("vllm-a", "0,1,2,3")
    host.unit("vllm-b", "4,5,6,7")
    host.unit("vllm-c", "")
    host.start("vllm-a", "vllm-b", "vllm-c")
    for name in ("vllm-a", "vllm-b", "vllm-c"):
        host.becomes(name, "running")
        assert "awaited" not in host.log(name)
    host.booted.systemctl("stop", "vllm-a", "vllm-b")
    for name in ("vllm-d", "vllm-e"):
        host.unit(name, "0", "--need-free 40GiB")
    host.start("vllm-d", "vllm-e")
    for name in ("vllm-d", "vllm-e"):
        host.becomes(name, "running")


# the files


def record(run: Path, name: str, *, alive: bool = True, now: Sequence[float] = (0.0,)) -> Admissions:
    times = iter(now)
    return Admissions(
        run, name, boot_id="b", is_alive=lambda _: alive, most_seconds=600.0, monotonic=lambda: next(times)
    )


def admission(of: UnitId = A, ago: float = 0.0) -> Admission:
    return replace(ADMITTED, unit=of, at_boottime_seconds=boottime() - ago)


def test_one_of_two_that_decide_by_the_same_is_admitted_and_the_other_sees_it(tmp_path: Path) -> None:
    first, second = record(tmp_path, A.name), record(tmp_path, B.name)
    assert (first.others(), second.others()) == ((), ())
    one = admission()
    assert first.admit(one, ())
    assert not second.admit(admission(B), ())
    assert second.others() == (one,)
    assert second.admit(admission(B), (one,))
    assert first.others() != ()
    assert first.admit(admission(), first.others()), "its own earlier one is no other's"


def test_of_many_at_once_one_is_admitted(tmp_path: Path) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from tests.guard.test_admissions import admission, record\n"
        "guard = record(Path(sys.argv[1]), sys.argv[2], now=range(99)); sys.stdin.readline()\n"
        "print(guard.admit(admission(), ()))"
    )
    guards = [
        subprocess.Popen(
            [sys.executable, "-c", code, str(tmp_path), f"{number}.service"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(4)
    ]
    for guard in guards:
        assert guard.stdin is not None
        guard.stdin.write("\n")
        guard.stdin.flush()
    assert sorted(guard.communicate(timeout=120)[0] for guard in guards) == ["False\n"] * 3 + ["True\n"]


@pytest.mark.parametrize("at", ["_remove_ended", "_document"])
def test_one_that_is_stopped_as_it_admits_is_not_waited_for_and_withdraws(tmp_path: Path, at: str) -> None:
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from tests.guard.test_admissions import Admissions, admission, record\n"
        f"do = Admissions.{at}\n"
        f"Admissions.{at} = lambda *given: (os.kill(os.getpid(), signal.SIGSTOP), do(*given))[1]\n"
        "print(record(Path(sys.argv[1]), 'vllm-a.service').admit(admission(), ()))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, text=True) as stopped:
        os.waitid(os.P_PID, stopped.pid, os.WSTOPPED)
        second = record(tmp_path, B.name, now=(10.0, 10.0 + STUCK_SECONDS - 0.1, 10.0 + STUCK_SECONDS))
        assert [second.admit(admission(B), ()) for _ in range(3)] == [False, False, True]
        stopped.send_signal(signal.SIGCONT)
        assert stopped.communicate(timeout=120)[0] == "False\n"
    assert second.others() == ()


def test_what_is_old_of_another_boot_or_of_an_ended_command_counts_no_more_and_goes(tmp_path: Path) -> None:
    assert record(tmp_path, A.name).admit(admission(ago=601.0), ())
    assert record(tmp_path, "process-7").admit(
        replace(admission(), unit=None, process=ProcessId(7, 1)), record(tmp_path, "process-7").others()
    )
    assert len(record(tmp_path, B.name).others()) == 1, "the command lives"
    guard = record(tmp_path, B.name, alive=False)
    assert guard.others() == ()
    assert guard.admit(admission(B), ())
    assert {path.name for path in (tmp_path / files.FOLDER).iterdir()} == {".lock", B.name}
    rebooted = Admissions(tmp_path, A.name, boot_id="c", is_alive=lambda _: True, most_seconds=600.0)
    assert rebooted.others() == ()


def test_files_of_other_users_and_what_is_none_count_for_nothing_and_are_said_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    needs_root()
    assert record(tmp_path, A.name).admit(admission(), ())
    folder = tmp_path / files.FOLDER
    (folder / "cut.service").write_text((folder / A.name).read_text()[:-20])
    os.mkfifo(folder / "pipe.service")
    (folder / "link.service").symlink_to(folder / A.name)
    os.chown(folder / A.name, 65534, -1)
    guard = record(tmp_path, B.name)
    assert [guard.others() for _ in range(2)] == [(), ()]
    assert len(caplog.records) == 4
    assert "it belongs to user 65534" in caplog.text
    os.chown(folder, 65534, -1)
    assert guard.admit(admission(B), ()), "the start goes on"
    assert "other guards are not told of this start" in caplog.text


def test_another_user_can_neither_write_nor_remove_an_admission_nor_hold_the_lock(tmp_path: Path) -> None:
    needs_root()
    assert record(tmp_path, A.name).admit(admission(), ())
    folder = tmp_path / files.FOLDER
    before = {path.name: path.read_bytes() for path in folder.iterdir()}
    attacks = (
        "touch evil.service",
        "rm -f vllm-a.service",
        "mv vllm-a.service x",
        "flock -n .lock true",
        "chmod 777 .",
    )
    for attack in attacks:
        # from within, as pytest's folders are closed to others
        done = subprocess.run(["sh", "-c", attack], cwd=folder, user=65534, check=False, capture_output=True)
        assert done.returncode != 0, attack
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == before
    assert record(tmp_path, B.name).admit(admission(B), record(tmp_path, B.name).others())
