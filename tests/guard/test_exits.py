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


# What the unit counts as success, the guard's options, and the code that it leaves by; "": it is ended by SIGTERM.
REFUSALS = (
    ("1 3", "--timeout 1s", 5),  # held, or on a busy machine: cannot tell
    ("1 3 5 TEMPFAIL 6", "--timeout 1s", 7),
    ("2", "--no-such-option", 5),  # wrong use
    ("3 143", "--gpus 7 --timeout 1s", 5),  # cannot tell: GPU 7 is lost
    ("4", "--on-fault refuse --config /nonexistent", 5),
    ("143 SIGTERM", "", 5),
)


def test_a_refused_start_is_refused_whatever_the_unit_counts_as_success(host: Host) -> None:
    host.use({0: "80G"}, "fault nvmlDeviceGetMemoryInfo* 7 15")
    names = [f"vllm-{number}" for number in range(len(REFUSALS))]
    for name, (listed, options, _) in zip(names, REFUSALS, strict=True):
        host.unit(name, "0", options=options, more=f"SuccessExitStatus={listed}")
    host.start(*names)
    for name, (_, options, code) in zip(names, REFUSALS, strict=True):
        if not options:
            host.says(name, "waits for GPU 0")
            host.booted.run(["kill", host.booted.show(f"{name}.service", "ControlPID")["ControlPID"]])
        host.becomes(name, "failed")
        shown = host.booted.show(f"{name}.service", "ExecMainStartTimestampMonotonic", "Result", "ExecStartPre")
        assert (shown["ExecMainStartTimestampMonotonic"], shown["Result"]) == ("0", "exit-code"), host.log(name)
        assert f"status={code}" in shown["ExecStartPre"]


@pytest.mark.parametrize(
    ("signal", "milliseconds"),
    [("TERM", 0), ("INT", 0), ("HUP", 50), ("QUIT", 50), ("TERM", 100), ("USR1", 200), ("INT", 400), ("TERM", 800)],
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


def test_a_stop_while_it_waits_is_noticed_whatever_kill_signal_says(host: Host) -> None:
    """A guard notices no SIGPIPE and no SIGCONT, but what systemd does."""
    host.use({0: "80G"})
    signals = ("INT", "QUIT", "RTMIN+3", "PIPE", "CONT")
    names = [f"vllm-{number}" for number in range(len(signals))]
    for name, signal in zip(names, signals, strict=True):
        host.unit(name, "0", more=f"KillSignal=SIG{signal}\nSendSIGHUP=yes")
    host.start(*names)
    for name in names:
        host.says(name, "waits for GPU 0", seconds=60)
    host.booted.systemctl("restart", "--no-block", *names)  # the second start waits as well
    for name in names:
        host.says(name, "ended by .*\n(.*\n)*.*waits for GPU 0", seconds=60)
    host.booted.systemctl("stop", *names)
    for name in names:
        assert host.booted.show(f"{name}.service", "ActiveState", "Result", "NRestarts") == {
            "ActiveState": "inactive",
            "Result": "success",
            "NRestarts": "0",
        }


# The line's beginning, NotifyAccess=, and whether systemd takes the guard's messages.
NOTIFYING = (
    (BELOW_SHELL, "exec", False),
    (BELOW_SHELL, "all", True),
    (TRAP, "exec", True),  # the guard is in the shell's place
    ("+", "exec", True),
    ("+", "main", False),
)


def test_it_is_never_ended_by_systemds_time_out(host: Host) -> None:
    host.use({0: "80G"})
    names = [f"vllm-{number}" for number in range(len(NOTIFYING))]
    for name, (prefix, access, _) in zip(names, NOTIFYING, strict=True):
        host.unit(name, "0", "--timeout 12s", f"TimeoutStartSec=8s\nNotifyAccess={access}", prefix)
    host.start(*names)
    for name, (_, _, extended) in zip(names, NOTIFYING, strict=True):
        host.becomes(name, "failed")
        assert host.booted.show(f"{name}.service", "Result")["Result"] == "exit-code", host.log(name)
        last = host.log(name).splitlines()[-1]
        assert ("0.8 s before TimeoutStartSec=8s would end it" in last) is not extended
        assert ("(--timeout)" in last) is extended


def test_more_time_is_asked_for_before_anything_is_imported(host: Host) -> None:
    """Of 500 ms the imports take most, on a busy machine more."""
    host.unit("vllm-a", "0", more="TimeoutStartSec=500ms\nNotifyAccess=exec")
    host.start("vllm-a")
    host.becomes("vllm-a", "running")
    assert host.booted.show("vllm-a.service", "NRestarts", "Result") == {"NRestarts": "0", "Result": "success"}
