"""The real `llmhost guard` against a fake driver: every exit code, and what it says."""

import os
import re
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.nvml import FakeNvml, fake_nvml

from llmhost.model.guard_run import GuardVerdict
from llmhost.model.ids import UnitId
from llmhost.state.guard_record import GuardRecords

__all__ = ["fake_nvml"]

FREE = ("gpu 0 total=96G reserved=1G used=600M", "gpu 1 total=96G reserved=1G used=600M")
HELD = ("gpu 0 total=96G reserved=1G used=90G", "gpu 1 total=96G reserved=1G used=600M")
AT_ONCE = ("--settle", "0s")


class Guards:
    """Runs guards that see a fake driver and no bus, and record in a directory of their own."""

    def __init__(self, nvml: FakeNvml, run: Path) -> None:
        self.nvml = nvml
        self.run_directory = run
        config = run.parent / "llmhost.yml"
        config.write_text("host: {pid_namespace: trust}\n")
        self._options = ("--run-dir", str(run), "--config", str(config), "--state-dir", str(run.parent))

    def start(self, *options: str, command: Sequence[str] = (), **more: str) -> subprocess.Popen[str]:
        behind = ("--", *command) if command else ()
        return subprocess.Popen(
            [*LLMHOST, "guard", *self._options, *options, *behind],
            env=environment({**self.nvml.environment(), **more}),
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *options: str, command: Sequence[str] = (), **more: str) -> tuple[int, str, list[str]]:
        """Give exit code, stdout, and the lines of the log without their times."""
        process = self.start(*options, command=command, **more)
        out, err = process.communicate(timeout=120)
        return process.returncode, out, [line.split(",", 1)[-1][4:] for line in err.splitlines()]

    def says(self, process: subprocess.Popen[str], pattern: str) -> None:
        """Wait for a line that has the pattern. Others may come first on a busy machine, where answers take longer."""
        assert process.stderr is not None
        lines = iter(process.stderr.readline, "")
        assert any(re.search(pattern, line) for line in lines), f"it has ended, and never said {pattern!r}"


@pytest.fixture
def guards(fake_nvml: FakeNvml, tmp_path: Path) -> Guards:
    (tmp_path / "run").mkdir()
    return Guards(fake_nvml, tmp_path / "run")


def test_free_gpus_are_0_and_one_line(guards: Guards) -> None:
    guards.nvml.write(FREE)
    code, out, lines = guards.run("--gpus", "0,1", "--need-free", "0.9", *AT_ONCE)
    assert (code, out) == (0, "")
    (line,) = lines
    # 0.9 × (96 − 1) GiB
    assert re.fullmatch(
        r"INFO the start: free after \d+\.\d s: 85\.5 GiB or more free on GPUs 0, 1(, steady .*)?", line
    )


def test_more_gpus_than_the_host_has_are_no_fault_of_it(guards: Guards, tmp_path: Path) -> None:
    """The head of two hosts. Its arguments are known, also from the environment."""
    guards.nvml.write(FREE)
    vllm = tmp_path / "vllm"
    vllm.write_text("#!/bin/sh\nexit 7\n")
    vllm.chmod(0o755)
    spanning = (str(vllm), "serve", "m", "--tensor-parallel-size", "8", "--distributed-executor-backend", "ray")
    code, _, lines = guards.run(*AT_ONCE, command=spanning)
    assert code == 7, lines  # the server's own
    wants = ("bash", "-c", f"exec {vllm} serve m $ARGS")
    code, _, lines = guards.run(*AT_ONCE, command=wants, ARGS="-tp 2 --gpu-memory-utilization 0.5")
    assert code == 7
    assert re.search(r"47\.5 GiB or more free on GPUs 0, 1", lines[0]), lines


@pytest.mark.parametrize("options", [(), ("--need-free", "0.9"), ("--reap",)])
def test_in_no_service_and_with_none_named_it_says_what_to_name(guards: Guards, options: tuple[str, ...]) -> None:
    guards.nvml.write(HELD)
    process = guards.start(*options)
    out, err = process.communicate(timeout=30)
    assert (process.returncode, out) == (2, "")
    (line,) = err.splitlines()
    assert line.startswith("llmhost: this is in no service")
    assert line.endswith("give --gpus LIST, or the command to start: -- COMMAND")
    # of systemd's, wherever it is by now
    assert guards.run("--max-used", "1GiB", "--timeout", "0s", *options, INVOCATION_ID="1" * 32)[0] != 2


def test_a_gpu_that_stays_held_is_1_with_holder_and_next_step(guards: Guards) -> None:
    with subprocess.Popen(["sleep", "100"]) as holder:
        guards.nvml.write([*HELD, f"proc 0 {holder.pid} mem=80G"])
        code, _, lines = guards.run("--gpus", "0,1", "--need-free", "0.9", "--timeout", "6s")
        holder.kill()
    assert code == 1
    reason = rf"GPU 0 \(5\.0 of 85\.5 GiB free\): 80\.0 GiB sleep pid {holder.pid} .*, 10\.0 GiB with no visible owner"
    *_, waits, last = lines
    assert re.search(rf"^INFO the start waits for {reason}; \d s of 6 s$", waits)
    assert re.search(rf"^ERROR the start: held after \d+\.\d s \(--timeout\): waits for {reason}\. Next step: ", last)
    assert last.endswith(f"Next step: end process {holder.pid}, or give this unit other GPUs")
    # Once; again after 5 s; and before that without who has it, where that takes more than a moment.
    assert len(lines) <= 4
    assert all(line.startswith("INFO the start waits for GPU 0 (5.0 of 85.5 GiB free)") for line in lines[:-1])


def test_memory_without_a_holder_is_named_with_its_rate_and_free_when_it_has_fallen(guards: Guards) -> None:
    """It falls by 20 GiB each 0.2 s, which is 100 GiB/s; then it must stand still for the second of --settle."""
    guards.nvml.write(["gpu 0 total=96G reserved=1G used=80G"])
    process = guards.start("--gpus", "0", "--need-free", "0.9")
    guards.says(process, r"GPU 0 \(15\.0 of 85\.5 GiB free\): 80\.0 GiB with no visible owner")
    for used in (60, 40, 20, 0):
        guards.nvml.write([f"gpu 0 total=96G reserved=1G used={used}G"])
        time.sleep(0.2)
    free_at = time.monotonic() - 0.2
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert re.search(r"free after \d+\.\d s: 85\.5 GiB or more free on GPU 0, steady for 1 s$", err)
    assert time.monotonic() - free_at >= 0.9, "the settle time"


def test_a_driver_that_is_not_there_is_waited_for(guards: Guards) -> None:
    process = guards.start("--gpus", "0", "--timeout", "20s", *AT_ONCE)
    guards.says(process, "waits for the driver: no driver")
    guards.nvml.write(FREE)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0
    assert "free after" in err


@pytest.mark.parametrize(
    ("lines", "reason"),
    [
        (None, "waits for the driver: no driver"),
        ((*FREE, "system 570 init=18"), "waits for the driver: driver mismatch"),
        ((*FREE, "fault nvmlDeviceGetMemoryInfo* 0 15"), "waits for the driver: lost .GPU 0"),
        ((*FREE, "delay nvmlDeviceGetMemoryInfo* 0 hang"), "it hangs in nvmlDeviceGetMemoryInfo.* of GPU 0 for"),
        ((*FREE, "delay nvmlInit* * hang"), "it hangs in nvmlInit.* for"),
    ],
)
def test_a_driver_that_cannot_serve_is_3_by_the_deadline_and_0_if_told_so(
    guards: Guards, lines: tuple[str, ...] | None, reason: str
) -> None:
    if lines is not None:
        guards.nvml.write(lines)
    processes = {
        policy: guards.start("--gpus", "0", "--timeout", "6s", "--on-unknown", policy) for policy in ("refuse", "admit")
    }
    for policy, code in (("refuse", 3), ("admit", 0)):
        _, err = processes[policy].communicate(timeout=120)
        assert processes[policy].returncode == code
        assert re.search(rf"ERROR the start: cannot tell after .*{reason}.* Next step: ", err), err


def test_no_bus_is_a_fault_that_admits_loudly_unless_it_must_refuse(guards: Guards) -> None:
    guards.nvml.write(HELD)
    processes = [guards.start("--unit", "vllm"), guards.start("--unit", "vllm", "--on-fault", "refuse")]
    for process, code, reason in zip(
        processes, (0, 4), ("the start goes on, whatever is on the GPUs", "the start is refused"), strict=True
    ):
        _, err = process.communicate(timeout=120)
        assert process.returncode == code
        assert "systemd cannot be asked: no bus" in err
        assert reason in err
    (run,) = GuardRecords(guards.run_directory).read(time.monotonic() + 5)
    assert (run.unit, run.verdict, run.runs_total) == (
        UnitId("vllm.service"),
        GuardVerdict.FAULT,
        {GuardVerdict.FAULT: 2},
    )


@pytest.mark.parametrize("need", ["90GiB", "0B"])
def test_without_a_bus_what_the_options_say_is_enough(guards: Guards, need: str) -> None:
    guards.nvml.write(FREE)
    code, _, lines = guards.run("--unit", "vllm", "--gpus", "0", "--need-free", need, *AT_ONCE)
    assert code == 0
    assert lines[-1].startswith("INFO vllm.service: free after ")
    (run,) = GuardRecords(guards.run_directory).read(time.monotonic() + 5)
    assert run.verdict is GuardVerdict.FREE


def test_a_bug_of_ours_admits_loudly_and_so_does_a_part_of_it_that_is_missing(guards: Guards, tmp_path: Path) -> None:
    """A folder before the installed package, in which one module of it cannot be imported, is a broken virtualenv."""
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "sitecustomize.py").write_text("import sys\nsys.modules['llmhost.sources.nvml.source'] = None\n")
    guards.nvml.write(HELD)
    for policy, code in (("admit", 0), ("refuse", 4)):
        found, _, lines = guards.run("--gpus", "0", "--on-fault", policy, PYTHONPATH=str(broken))
        assert found == code
        assert any(line.startswith("ERROR llmhost is half installed, or half replaced (") for line in lines)
        assert any("the guard itself has failed" in line for line in lines)


def test_a_half_replaced_llmhost_runs_the_command_unless_it_must_refuse(guards: Guards, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import sys\nsys.modules['llmhost.cli.command'] = None\n")
    command = ("sh", "-c", 'echo "$0 $OF_ENGINE"', "--on-fault=refuse")  # the command's own
    for policy, expected in (("admit", (0, "--on-fault=refuse x\n")), ("refuse", (4, ""))):
        options = ("--on-fault", policy)
        assert guards.run(*options, command=command, PYTHONPATH=str(tmp_path), OF_ENGINE="x")[:2] == expected


def test_an_llmhost_that_is_slow_to_begin_waits_as_long_from_then_on(guards: Guards, tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text("import os, signal\nos.kill(os.getpid(), signal.SIGSTOP)\n")
    guards.nvml.write(HELD)
    guard = guards.start("--gpus", "0", "--timeout", "1s", PYTHONPATH=str(tmp_path))
    assert os.WIFSTOPPED(os.waitpid(guard.pid, os.WUNTRACED)[1])
    time.sleep(1.2)
    guard.send_signal(signal.SIGCONT)
    _, err = guard.communicate(timeout=30)
    assert guard.returncode == 1
    assert re.search(r"held after [1-9]\d*\.\d s \(--timeout\): ", err)


def test_a_run_directory_that_cannot_be_written_costs_the_record_of_that_run_alone(guards: Guards) -> None:
    guards.nvml.write(FREE)
    guards.run_directory.rmdir()
    guards.run_directory.touch()
    code, _, lines = guards.run("--gpus", "0", "--need-free", "1GiB", "--unit", "vllm-a")
    assert code == 0
    assert any(line.startswith(f"WARNING this run is not recorded: {guards.run_directory}") for line in lines), lines
    guards.run_directory.unlink()
    guards.run_directory.mkdir()
    assert guards.run("--gpus", "0", "--need-free", "1GiB", "--unit", "vllm-a")[0] == 0
    (run,) = GuardRecords(guards.run_directory).read(time.monotonic() + 5)
    assert run.runs_total == {GuardVerdict.FREE: 1}


def test_a_run_directory_that_is_absent_is_made_for_the_record(guards: Guards) -> None:
    guards.nvml.write(FREE)
    guards.run_directory.rmdir()
    assert guards.run("--gpus", "0", "--need-free", "1GiB", "--unit", "vllm-a")[0] == 0
    assert (guards.run_directory / "guards" / "vllm-a.service").is_file()


def test_the_kill_switches_admit_everything_loudly(guards: Guards) -> None:
    guards.nvml.write(HELD)
    code, _, (line,) = guards.run("--gpus", "0", LLMHOST_GUARD="off")
    assert (code, line) == (
        0,
        "WARNING the guard is switched off by LLMHOST_GUARD=off: the start goes on, whatever is on the GPUs",
    )
    switch = guards.run_directory / "guard.off"
    switch.touch()
    code, out, (line,) = guards.run("--gpus", "0", command=("echo", "started"))
    assert (code, out) == (0, "started\n")
    assert str(switch) in line
    if os.geteuid() == 0:
        os.chown(switch, 65534, -1)
        assert guards.run("--gpus", "0", "--timeout", "0s")[0] == 1, "a switch of somebody else's is none"


def test_a_command_is_run_once_free_in_the_guards_place_and_with_its_options(guards: Guards) -> None:
    guards.nvml.write(FREE)
    process = guards.start("--gpus", "0", *AT_ONCE, command=("sh", "-c", 'echo $$ "$@"', "sh", "--", "--unit", "x"))
    out, _ = process.communicate(timeout=120)
    assert (process.returncode, out) == (0, f"{process.pid} -- --unit x\n")
    guards.nvml.write(HELD)
    code, out, _ = guards.run("--gpus", "0", "--timeout", "0s", command=("echo", "started"))
    assert (code, out) == (1, "")


def test_a_commands_own_arguments_say_what_it_needs_and_its_environment_where(guards: Guards) -> None:
    """0.9 × 95 = 85.5 GiB on the second GPU."""
    vllm = guards.run_directory / "vllm"
    vllm.write_text("#!/bin/sh\necho serving\n")
    vllm.chmod(0o755)
    guards.nvml.write([FREE[0], "gpu 1 total=96G reserved=1G used=10G"])
    command = (str(vllm), "serve", "model", "--gpu-memory-utilization", "0.9")
    code, _, lines = guards.run("--timeout", "300ms", command=command, CUDA_VISIBLE_DEVICES="1")
    assert code == 1
    assert "GPU 1 (85.0 of 85.5 GiB free)" in lines[-1]
    code, out, _ = guards.run(*AT_ONCE, command=command, CUDA_VISIBLE_DEVICES="0")
    assert (code, out) == (0, "serving\n")


def test_a_signal_ends_the_wait_at_once_as_in_a_shell_and_it_says_what_it_waited_for(guards: Guards) -> None:
    for lines, number in ((HELD, signal.SIGTERM), ((*FREE, "delay nvmlDeviceGetMemoryInfo* 0 hang"), signal.SIGINT)):
        guards.nvml.write(lines)
        process = guards.start("--gpus", "0", "--need-free", "0.9")
        guards.says(process, "waits for")
        process.send_signal(number)
        _, err = process.communicate(timeout=120)  # and not ten minutes, nor for as long as the driver hangs
        assert process.returncode == 128 + number
        assert f"ended by {number.name} after" in err


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        (("--need-free", "85"), 'a size needs a unit (B, KiB, MiB, GiB or TiB); did you mean "85MiB"?'),
        (("--need-free", "0.0"), "a ratio is above 0, and at most 1"),
        (("--settle", "1"), 'a time needs a unit (ms, s, m, h or d); did you mean "1s"?'),
        (("--gpus", ","), "names no GPU"),
        (("--on-unknown", "shrug"), "invalid choice: 'shrug'"),
        (("--", "/nonexistent/vllm"), "there is no program /nonexistent/vllm"),
    ],
)
def test_wrong_use_is_2(guards: Guards, options: tuple[str, ...], complaint: str) -> None:
    process = guards.start(*options)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert complaint in err.splitlines()[-1]


def test_lists_are_read_once_a_second_at_most_and_memory_more_often(guards: Guards, tmp_path: Path) -> None:
    """Live engines wait for the lock that a list takes. Memory moves all the time here, so lists would be news."""
    trace = tmp_path / "trace"
    process = None
    until = time.monotonic() + 120
    lists: list[float] = []
    memory: list[float] = []
    while len(lists) < 4:
        assert time.monotonic() < until, "lists are read again and again"
        used = 41 - len(memory) % 2
        guards.nvml.write([f"system x trace={trace}", f"gpu 0 total=96G reserved=1G used={used}G"])
        process = process or guards.start("--gpus", "0", "--need-free", "0.9")
        time.sleep(0.1)
        calls = [line.split() for line in trace.read_text().splitlines()] if trace.exists() else []
        lists = [float(call[0]) for call in calls if len(call) > 2 and "DeviceGetComputeRunning" in call[2]]
        memory = [float(call[0]) for call in calls if len(call) > 2 and "MemoryInfo" in call[2]]
    assert process is not None
    process.terminate()
    process.communicate(timeout=120)
    assert lists[3] - lists[0] >= 3 * 900 - 500, "in ms; one may be late on a busy machine, and the next not"
    assert len(memory) > 2 * len(lists)
