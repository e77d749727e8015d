"""How a guard ends on a real systemd: by which exit code, by which signal, and before which time-out."""

import re

import pytest
from tests.fakes.booted import booted_systemd
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]

SHELL = "+/bin/sh -c "
# What the shell ignores stays ignored until the guard's Python runs, which takes a while.
TRAP = f'{SHELL}\'trap "" TERM INT HUP QUIT USR1; exec "$$@"\' sh '
BELOW_SHELL = f"{SHELL}'\"$$@\"; exit $$?' sh "


@pytest.mark.parametrize(
    ("listed", "options", "code"),
    [
        ("1", "--timeout 1s", 5),  # held
        ("1 5 TEMPFAIL 6", "--timeout 1s", 7),
        ("2", "--no-such-option", 5),  # wrong use
        ("3 143", "--gpus 7 --timeout 1s", 5),  # cannot tell: GPU 7 is lost
        ("4", "--on-fault refuse --config /nonexistent", 5),
        ("143 SIGTERM", "", 5),
    ],
)
def test_a_refused_start_is_refused_whatever_the_unit_counts_as_success(
    host: Host, listed: str, options: str, code: int
) -> None:
    host.use({0: "80G"}, "fault nvmlDeviceGetMemoryInfo* 7 15")
    host.unit("vllm-a", "0", options=options, more=f"SuccessExitStatus={listed}")
    host.start("vllm-a")
    if not options:
        host.says("vllm-a", "waits for GPU 0")
        host.booted.run(["kill", host.booted.show("vllm-a.service", "ControlPID")["ControlPID"]])
    host.becomes("vllm-a", "failed")
    shown = host.booted.show("vllm-a.service", "ExecMainStartTimestampMonotonic", "Result", "ExecStartPre")
    assert (shown["ExecMainStartTimestampMonotonic"], shown["Result"]) == ("0", "exit-code"), host.log("vllm-a")
    assert f"status={code}" in shown["ExecStartPre"]


@pytest.mark.parametrize(
    ("signal", "milliseconds"),
    [("TERM", 0), ("INT", 0), ("HUP", 50), ("QUIT", 50), ("TERM", 100), ("USR1", 200), ("RTMIN+3", 400), ("TERM", 800)],
)
def test_a_stop_at_any_moment_leaves_no_failed_unit(host: Host, signal: str, milliseconds: int) -> None:
    host.use({0: "80G"})
    host.unit("vllm-a", "0", prefix=TRAP, more=f"KillSignal=SIG{signal}")
    seen = "until grep -qs . /sys/fs/cgroup/system.slice/vllm-a.service/cgroup.procs; do :; done"
    stop = f"systemctl start --no-block vllm-a; {seen}; sleep {milliseconds / 1000}; systemctl stop vllm-a"
    host.booted.run(["sh", "-c", stop])
    assert host.booted.show("vllm-a.service", "ActiveState", "Result") == {
        "ActiveState": "inactive",
        "Result": "success",
    }
    assert re.search(r"vllm-a\.service: ended by \S.* after \d+\.\d s: ", host.log("vllm-a").splitlines()[-1])


@pytest.mark.parametrize("signal", ["INT", "QUIT", "USR2", "PIPE", "CONT"])
def test_a_stop_while_it_waits_is_noticed_whatever_kill_signal_says(host: Host, signal: str) -> None:
    """A guard notices no SIGPIPE and no SIGCONT, but what systemd does."""
    host.use({0: "80G"})
    host.unit("vllm-a", "0", more=f"KillSignal=SIG{signal}\nSendSIGHUP=yes")
    host.start("vllm-a")
    host.says("vllm-a", "waits for GPU 0")
    host.booted.systemctl("restart", "--no-block", "vllm-a")  # the second start waits as well
    host.says("vllm-a", "ended by .*\n(.*\n)*.*waits for GPU 0")
    host.booted.systemctl("stop", "vllm-a")
    assert host.booted.show("vllm-a.service", "ActiveState", "Result", "NRestarts") == {
        "ActiveState": "inactive",
        "Result": "success",
        "NRestarts": "0",
    }


@pytest.mark.parametrize(
    ("prefix", "access", "result"),
    [
        (BELOW_SHELL, "exec", "given up"),  # systemd does not take the guard's messages
        (BELOW_SHELL, "all", "extended"),
        (TRAP, "exec", "extended"),  # the guard is in the shell's place
        ("+", "exec", "extended"),
        ("+", "main", "given up"),
    ],
)
def test_it_is_never_ended_by_systemds_time_out(host: Host, prefix: str, access: str, result: str) -> None:
    host.use({0: "80G"})
    host.unit("vllm-a", "0", "--timeout 8s", f"TimeoutStartSec=4s\nNotifyAccess={access}", prefix)
    host.start("vllm-a")
    host.becomes("vllm-a", "failed")
    assert host.booted.show("vllm-a.service", "Result")["Result"] == "exit-code", host.log("vllm-a")
    last = host.log("vllm-a").splitlines()[-1]
    assert ("TimeoutStartSec=4s would end it" in last) is (result == "given up")
    assert ("held after 8." in last) is (result == "extended")


def test_more_time_is_asked_for_before_anything_is_imported(host: Host) -> None:
    """Of 500 ms the imports take most, on a busy machine more."""
    host.unit("vllm-a", "0", more="TimeoutStartSec=500ms\nNotifyAccess=exec")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert host.booted.show("vllm-a.service", "NRestarts", "Result") == {"NRestarts": "0", "Result": "success"}
