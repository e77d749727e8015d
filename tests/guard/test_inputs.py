"""A config or history that is broken, or lies where nothing answers, keeps no service from starting."""

import errno
import re
import subprocess
import time
from pathlib import Path

from tests.fakes.booted import booted_systemd
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.hung_mount import HungMount, hung_mount
from tests.fakes.nvml import fake_nvml
from tests.guard.test_command import AT_ONCE, FREE, Guards, guards
from tests.guard.test_on_systemd import Host, host

from llmhost.guard.inputs import FileReading
from llmhost.guard.readings import FreeShm
from llmhost.model.reading import Cause, Failed, Ok, Reading
from llmhost.sources.host import read_free_bytes

__all__ = ["booted_systemd", "fake_nvml", "guards", "host", "hung_mount"]

NEED = ("--gpus", "0", "--need-free", "0.9", *AT_ONCE)


def test_a_config_that_does_not_answer_is_done_without_loudly(guards: Guards, hung_mount: Path) -> None:
    guards.nvml.write(FREE)
    began = time.monotonic()
    code, _, lines = guards.run(*NEED, "--config", str(hung_mount / "llmhost.yml"))
    assert code == 0
    assert time.monotonic() - began >= 3
    assert f"ERROR the config does not answer: {hung_mount}/llmhost.yml: it is done without, by the defaults" in lines
    assert re.search(r"INFO the start: free after \d+\.\d s", lines[-1])


def test_it_refuses_the_start_where_faults_do(guards: Guards, hung_mount: Path) -> None:
    guards.nvml.write(FREE)
    code, _, lines = guards.run(*NEED, "--config", str(hung_mount / "llmhost.yml"), "--on-fault", "refuse")
    assert code == 4
    assert lines == [
        f"ERROR the config does not answer: {hung_mount}/llmhost.yml",
        "ERROR the guard itself has failed, and the start is refused, as --on-fault=refuse says",
    ]


def test_a_history_that_does_not_answer_is_done_without_and_is_no_fault(guards: Guards, hung_mount: Path) -> None:
    guards.nvml.write(FREE)
    code, _, lines = guards.run(*NEED, "--state-dir", str(hung_mount), "--on-fault", "refuse")
    assert code == 0
    assert f"WARNING there is no history: {hung_mount} does not answer" in lines


def test_a_run_directory_that_does_not_answer_holds_no_start(host: Host) -> None:
    host.booted.run(["mkdir", "-p", "/run/hung"])
    host.unit("vllm-a", "0", options="--run-dir /run/hung/below")
    with HungMount(Path("/run/hung"), prefix=("nsenter", "-t", str(host.booted.pid), "-a")):
        host.start("vllm-a")
        host.becomes("vllm-a", "running")
    log = host.log("vllm-a")
    assert "whether the guard is switched off is not known: /run/hung/below does not answer" in log
    assert "free after" in log
    assert "this run is not recorded: /run/hung/below does not answer" in log


def test_shared_memory_that_does_not_answer_is_not_known_to_be_free_and_holds_up_nobody(
    hung_mount: Path,
) -> None:
    hung = FreeShm(lambda: read_free_bytes(hung_mount))
    assert (hung.take(), hung.take()) == (None, None)
    answers = FreeShm(lambda: read_free_bytes(Path("/proc/self")))  # proc(5) has no space
    assert (answers.take(), answers.take()) == (0, 0)


def test_run_by_hand_a_broken_config_is_wrong_use(guards: Guards, tmp_path: Path) -> None:
    (tmp_path / "broken.yml").write_text("units: {patern: [a]}\n")
    code, _, lines = guards.run(*NEED, "--config", str(tmp_path / "broken.yml"))
    assert code == 2
    assert "units.patern" in lines[-1]


def test_what_systemd_has_started_is_not_run_by_hand(guards: Guards, tmp_path: Path) -> None:
    """A unit of a user's manager, or a service whose main process is `llmhost guard -- COMMAND`."""
    (tmp_path / "broken.yml").write_text("units: {patern: [a]}\n")
    guards.nvml.write(FREE)
    guard = [*LLMHOST, "guard", *NEED, "--run-dir", str(tmp_path), "--config", str(tmp_path / "broken.yml")]
    as_systemd = ["sh", "-c", 'SYSTEMD_EXEC_PID=$$ exec "$@"', "sh", *guard, "--", "echo", "started"]
    done = subprocess.run(
        as_systemd, env=environment(guards.nvml.environment()), capture_output=True, text=True, check=False, timeout=120
    )
    assert (done.returncode, done.stdout) == (0, "started\n"), done.stderr
    assert "units.patern" in done.stderr


def test_a_file_on_a_disk_that_fails_is_read_again_and_may_come() -> None:
    answers: list[Exception | str] = [OSError(errno.ESTALE, "Stale file handle", "/var/lib/llmhost"), "whole"]

    def read() -> str:
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    reading = FileReading(read, name="history", silent="", strict=True)
    found: list[Reading[str]] = []
    while len(found) < 2:
        if (taken := reading.take()) is not None:
            found.append(taken)
        time.sleep(0.01)
    assert found == [Failed(Cause.UNKNOWN, "/var/lib/llmhost: Stale file handle"), Ok("whole")]


def test_in_a_services_start_a_broken_config_is_done_without_loudly(host: Host) -> None:
    host.booted.write("/etc/llmhost-guard.yml", "units: {patern: [a]}\n")
    host.unit("vllm-a", "0")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    log = host.log("vllm-a")
    assert re.search(r"ERROR .*llmhost-guard\.yml.*units\.patern.*: it is done without, by the defaults", log)
    assert "free after" in log
    assert host.record("vllm-a")["verdict"] == "free"


def test_or_refuses_the_start_where_faults_do(host: Host) -> None:
    host.unit("vllm-a", "0", options="--config /etc/none.yml --on-fault refuse")
    host.start("vllm-a")
    host.becomes("vllm-a", "failed")
    assert host.booted.show("vllm-a.service", "ExecStartPre")["ExecStartPre"].endswith("status=4 }")
    assert host.record("vllm-a")["verdict"] == "fault"
    assert "ERROR /etc/none.yml: cannot read it: No such file or directory\n" in host.log("vllm-a")


def test_wrong_options_are_wrong_use_there_as_well(host: Host) -> None:
    host.unit("vllm-a", "0", options="--timeout 1")
    host.start("vllm-a")
    host.becomes("vllm-a", "failed")
    assert host.booted.show("vllm-a.service", "ExecStartPre")["ExecStartPre"].endswith("status=2 }")
