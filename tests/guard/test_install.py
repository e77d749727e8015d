"""`llmhost guard --install` and `--uninstall` on a real systemd."""

import math
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.booted import Booted, booted_systemd

from llmhost.act.drop_ins import drop_in_of, is_as_written, signed
from llmhost.decide.guard.drop_in import OwnSettings, UnfitError, guard_drop_in_text, span_seconds

__all__ = ["booted_systemd"]

SHIPPED = (Path(__file__).parents[2] / "systemd/guard.conf").read_text()
UNIT = "[Service]\nExecStart=sleep 1000\n{more}\n"
PATH = "/etc/systemd/system/vllm-i.service.d/llmhost-guard.conf"


def guard_command(booted: Booted, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = ["env", "-C", str(Path.cwd()), sys.executable, "-m", "llmhost", "guard", *arguments]
    return booted.run(command, check=False)


@pytest.fixture
def unit(booted_systemd: Booted) -> Iterator[Booted]:
    """Give a systemd with a unit vllm-i.service, without a drop-in."""
    booted_systemd.write_unit("vllm-i.service", UNIT.format(more=""))
    booted_systemd.systemctl("daemon-reload")
    yield booted_systemd
    booted_systemd.run(["rm", "-rf", str(Path(PATH).parent)])
    booted_systemd.systemctl("daemon-reload")


def commands(booted: Booted, unit: str = "vllm-i.service") -> str:
    return booted.show(unit, "ExecStartPre").get("ExecStartPre", "")


def test_the_drop_in_is_shown_written_and_read_and_goes_again(unit: Booted) -> None:
    done = guard_command(unit, "--install", "vllm-i")
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith(f"{PATH}:\n\n# Drop-in for a service")
    assert done.stdout.endswith(
        "Written. Before llmhost is removed: llmhost guard --uninstall vllm-i.service\n"
        "systemd has read it. The guard runs at the next start of vllm-i.service; what runs now goes on.\n"
    )
    assert f"{sys.executable} -I -m llmhost guard" in commands(unit)
    assert "/opt/llmhost" not in commands(unit)
    assert unit.show("vllm-i.service", "StartLimitBurst", "NotifyAccess", "RestartUSec") == {
        "StartLimitBurst": "5",
        "NotifyAccess": "exec",
        "RestartUSec": "30s",
    }
    mode = unit.run(["stat", "-c", "%a %U", PATH]).stdout
    assert mode == "644 root\n"
    again = guard_command(unit, "--install", "vllm-i.service")
    assert (again.returncode, again.stdout.splitlines()[-1]) == (0, "It is there already.")
    done = guard_command(unit, "--uninstall", "vllm-i")
    assert done.returncode == 0
    assert done.stdout.splitlines() == [
        f"Removed {PATH}",
        "systemd has read it. No guard runs at the next start of vllm-i.service; what runs now goes on.",
    ]
    assert commands(unit) == ""
    assert unit.run(["ls", "-A", "/etc/systemd/system/vllm-i.service.d"], check=False).returncode != 0


def test_what_was_edited_is_neither_overwritten_nor_removed(unit: Booted) -> None:
    guard_command(unit, "--install", "vllm-i")
    unit.run(["sed", "-i", "s/RestartSec=30s/RestartSec=60s/", PATH])
    for option, rest in (("--install", "Move it away first"), ("--uninstall", f"To remove it: rm {PATH}")):
        done = guard_command(unit, option, "vllm-i")
        assert done.returncode == 1
        assert done.stderr == f"llmhost: {PATH} is somebody's own, or has been edited: left alone. {rest}\n"
    assert "RestartSec=60s" in unit.run(["cat", PATH]).stdout


def test_what_another_version_wrote_is_written_anew_and_others_drop_ins_stay(unit: Booted) -> None:
    unit.run(["mkdir", "-p", str(Path(PATH).parent)])
    unit.write(PATH, signed("[Service]\nRestartSec=20s\n"))
    unit.write(f"{Path(PATH).parent}/own.conf", "[Service]\nNice=5\n")
    assert guard_command(unit, "--install", "vllm-i").returncode == 0
    assert unit.show("vllm-i.service", "RestartUSec") == {"RestartUSec": "30s"}
    assert guard_command(unit, "--uninstall", "vllm-i").returncode == 0
    assert unit.run(["ls", "-A", str(Path(PATH).parent)]).stdout == "own.conf\n"


def test_a_service_that_lets_all_notify_keeps_that(unit: Booted) -> None:
    unit.write_unit("vllm-i.service", UNIT.format(more="NotifyAccess=all"))
    unit.systemctl("daemon-reload")
    assert guard_command(unit, "--install", "vllm-i").returncode == 0
    assert unit.show("vllm-i.service", "NotifyAccess") == {"NotifyAccess": "all"}


def test_times_that_are_longer_than_ours_stay(unit: Booted) -> None:
    unit.write_unit("vllm-i.service", UNIT.format(more="TimeoutStartSec=5400\nRestartSec=20"))
    unit.systemctl("daemon-reload")
    assert guard_command(unit, "--install", "vllm-i").returncode == 0
    assert unit.show("vllm-i.service", "TimeoutStartUSec", "RestartUSec") == {
        "TimeoutStartUSec": "1h 30min",
        "RestartUSec": "30s",
    }
    assert "# left out, as the service has TimeoutStartSec=1h 30min\n" in unit.run(["cat", PATH]).stdout
    assert guard_command(unit, "--install", "vllm-i").stdout.endswith("It is there already.\n")


def test_a_guard_that_is_there_by_other_means_is_not_doubled(unit: Booted) -> None:
    more = "ExecStartPre=/bin/true\nExecStartPre=+/opt/llmhost/bin/llmhost guard --timeout 5m"
    unit.write_unit("vllm-i.service", UNIT.format(more=more))
    unit.systemctl("daemon-reload")
    done = guard_command(unit, "--install", "vllm-i")
    message = "llmhost: vllm-i.service has a guard already (systemctl cat vllm-i.service): nothing is written\n"
    assert (done.returncode, done.stdout, done.stderr) == (1, "", message)


def test_a_drop_in_that_takes_the_guard_away_is_reported(unit: Booted) -> None:
    unit.run(["mkdir", "-p", str(Path(PATH).parent)])
    unit.write(f"{Path(PATH).parent}/override.conf", "[Service]\nExecStartPre=\nExecStartPre=/bin/true\n")
    done = guard_command(unit, "--install", "vllm-i")
    assert done.returncode == 1
    assert "the guard will not run: ExecStartPre= of another drop-in takes it away" in done.stderr


def test_a_service_that_may_start_before_the_bus_is_noted(unit: Booted) -> None:
    for more, noted in (("", True), ("After=dbus.socket\n", False)):
        unit.write_unit("vllm-i.service", f"[Unit]\nDefaultDependencies=no\n{more}{UNIT.format(more='')}")
        unit.systemctl("daemon-reload")
        done = guard_command(unit, "--install", "vllm-i")
        assert done.returncode == 0
        assert ("Note: the service may start before D-Bus does (DefaultDependencies=no)" in done.stdout) is noted
        guard_command(unit, "--uninstall", "vllm-i")


def test_the_drop_in_of_a_service_that_has_gone_can_be_removed(unit: Booted) -> None:
    unit.write_unit("vllm-gone.service", UNIT.format(more=""))
    assert guard_command(unit, "--install", "vllm-gone").returncode == 0
    unit.run(["rm", "/etc/systemd/system/vllm-gone.service"])
    unit.systemctl("daemon-reload")
    done = guard_command(unit, "--uninstall", "vllm-gone")
    assert (done.returncode, done.stderr) == (0, "")
    assert unit.run(["ls", "/etc/systemd/system/vllm-gone.service.d"], check=False).returncode != 0


def test_templates_and_aliases_are_found(unit: Booted) -> None:
    unit.write_unit("vllm-t@.service", UNIT.format(more=""))
    unit.run(["ln", "-sf", "vllm-i.service", "/etc/systemd/system/llm-alias.service"])
    unit.systemctl("daemon-reload")
    assert guard_command(unit, "--install", "vllm-t@.service").returncode == 0
    assert "llmhost guard" in commands(unit, "vllm-t@gpu0.service")
    assert guard_command(unit, "--uninstall", "vllm-t@").returncode == 0
    assert guard_command(unit, "--install", "llm-alias").stdout.startswith(f"{PATH}:")
    assert guard_command(unit, "--uninstall", "llm-alias").returncode == 0
    unit.run(["rm", "/etc/systemd/system/llm-alias.service"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("--install", ""), "'' is no name of a service"),
        (("--install", "nope"), "systemd has no unit nope.service"),
        (("--install", "../x"), "'../x' is no name of a service"),
        (("--uninstall", "vllm-i"), f"there is no {PATH}: nothing to remove"),
        (("--install", "a", "--uninstall", "a"), "--install and --uninstall do not go together"),
    ],
)
def test_wrong_use_is_one_line(unit: Booted, arguments: tuple[str, ...], line: str) -> None:
    done = guard_command(unit, *arguments)
    assert (done.returncode, done.stderr, done.stdout) == (2, f"llmhost: {line}\n", "")


def test_systemd_finds_nothing_wrong_with_what_is_written(unit: Booted) -> None:
    guard_command(unit, "--install", "vllm-i")
    verified = unit.run(["systemd-analyze", "verify", "vllm-i.service"], check=False)
    assert "llmhost-guard.conf" not in verified.stderr, verified.stderr


FOLDER = str(Path(PATH).parent)
MOUNTS = {
    "a full disk": ("-o size=4k", f"dd if=/dev/zero of={FOLDER}/full bs=4k count=1", "No space left on device"),
    "a read-only one": ("-o ro", "true", "Read-only file system"),
}


@pytest.mark.parametrize("case", MOUNTS)
def test_what_cannot_be_written_is_told_with_its_path_and_leaves_nothing(unit: Booted, case: str) -> None:
    options, fill, reason = MOUNTS[case]
    unit.run(["sh", "-ec", f"mkdir -p {FOLDER}; mount -t tmpfs {options} tmpfs {FOLDER}; {fill} 2>/dev/null"])
    try:
        before = unit.run(["ls", "-A", FOLDER]).stdout
        done = guard_command(unit, "--install", "vllm-i")
        assert (done.returncode, done.stderr) == (2, f"llmhost: {PATH}: cannot be written: {reason}\n")
        assert unit.run(["ls", "-A", FOLDER]).stdout == before
    finally:
        unit.run(["umount", FOLDER])


SLOW = "sleep 1000"
FAILING = "echo 'Failed to reload daemon: Connection timed out' >&2; exit 1"


@pytest.mark.parametrize(
    ("reload", "reason"),
    [(SLOW, "systemctl daemon-reload has not answered for 0.5 s"), (FAILING, "Failed to reload daemon: Connection")],
)
def test_a_systemd_that_has_not_read_the_drop_in_is_told_and_no_success(unit: Booted, reload: str, reason: str) -> None:
    unit.run(["mkdir", "-p", "/run/slow"])
    script = f'#!/bin/sh\n[ "$1" = daemon-reload ] || exec /bin/systemctl "$@"\n{reload}\n'
    unit.write("/run/slow/systemctl", script)
    unit.run(["chmod", "755", "/run/slow/systemctl"])
    program = (
        "import os, sys\nfrom llmhost.cli import guard_install\nfrom llmhost.cli.requests import InstallRequest\n"
        "os.environ['PATH'] = '/run/slow:' + os.environ['PATH']\nguard_install._RELOAD_SECONDS = 0.5\n"
        "sys.exit(guard_install.run(InstallRequest(unit='vllm-i', remove='remove' in sys.argv)))"
    )
    for arguments, rest in (([], "Written"), (["remove"], "Removed")):
        command = ["env", "-C", str(Path.cwd()), sys.executable, "-c", program, *arguments]
        done = unit.run(command, check=False)
        assert done.returncode == 3
        assert done.stderr.startswith(f"llmhost: systemd has not read it yet ({reason}")
        assert done.stderr.endswith("): run systemctl daemon-reload\n")
        assert rest in done.stdout


def test_what_is_begun_is_done_to_its_end_also_where_nobody_reads_that(unit: Booted) -> None:
    guard = f"env -C {Path.cwd()} {sys.executable} -m llmhost guard"
    for script in (f"{guard} --install vllm-i | true", f"{guard} --uninstall vllm-i | true"):
        unit.run(["bash", "-o", "pipefail", "-c", script])
    assert commands(unit) == ""
    unit.run(["bash", "-c", f"{guard} --install vllm-i >/dev/full"])
    assert "llmhost guard" in commands(unit)


def test_a_service_without_a_start_limit_keeps_that_and_is_told_so(unit: Booted) -> None:
    unit.write_unit("vllm-i.service", f"[Unit]\nStartLimitIntervalSec=0\n{UNIT.format(more='')}")
    unit.systemctl("daemon-reload")
    done = guard_command(unit, "--install", "vllm-i")
    assert "Note: the service keeps its own start limit (StartLimitIntervalSec=0, StartLimitBurst=5)" in done.stdout
    assert unit.show("vllm-i.service", "StartLimitIntervalUSec") == {"StartLimitIntervalUSec": "0"}
    assert guard_command(unit, "--install", "vllm-i").stdout.endswith("It is there already.\n")


def test_the_shipped_drop_in_has_the_lines_that_are_replaced() -> None:
    lines = SHIPPED.splitlines()
    assert sum(line.startswith("ExecStartPre=+/bin/sh -c '") for line in lines) == 1
    for line in ("/opt/llmhost/bin/python -I -m llmhost guard", "NotifyAccess=exec", "StartLimitIntervalSec=2h"):
        assert lines.count(line) == 1


def test_a_path_is_written_as_systemd_reads_it() -> None:
    text = guard_drop_in_text(SHIPPED, "/opt/my tools/100%/python", OwnSettings())
    assert '"/opt/my tools/100%%/python" -I -m llmhost guard' in text.splitlines()
    with pytest.raises(UnfitError, match="at a path of printable characters"):
        guard_drop_in_text(SHIPPED, "/opt/a\nb/python", OwnSettings())


@pytest.mark.parametrize(
    ("interval", "burst", "kept"),
    [("10s", "5", False), ("0", "5", True), ("10s", "0", True), ("2h", "5", False), ("1d", "9", True)],
)
def test_a_start_limit_that_is_off_on_purpose_or_longer_is_left_to_the_service(
    interval: str, burst: str, kept: bool
) -> None:
    own = OwnSettings(start_limit_interval=interval, start_limit_burst=burst)
    lines = guard_drop_in_text(SHIPPED, "/opt/llmhost/bin/python", own).splitlines()
    assert ("StartLimitIntervalSec=2h" in lines, "StartLimitBurst=5" in lines) == (not kept, not kept)


def test_the_guard_is_the_services_user_without_the_plus() -> None:
    text = guard_drop_in_text(SHIPPED, "/opt/llmhost/bin/python", OwnSettings(), as_user=True)
    assert "ExecStartPre=/bin/sh -c '" in text
    assert "ExecStartPre=+" not in text


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("30s", 30), ("1h 30min", 5400), ("1min 30.5s", 90.5), ("100ms", 0.1), ("infinity", math.inf), ("", 0), ("x", 0)],
)
def test_time_spans_are_read_as_systemctl_writes_them(text: str, seconds: float) -> None:
    assert span_seconds(text) == seconds


def test_an_edit_is_noticed(tmp_path: Path) -> None:
    drop_in = drop_in_of("a.service", tmp_path)
    assert drop_in.text() is None
    drop_in.write("[Service]\n")
    text = drop_in.text()
    assert text is not None
    assert is_as_written(text)
    assert not is_as_written(text + "#\n")
    assert not is_as_written("[Service]\n")
    assert [path.name for path in drop_in.path.parent.iterdir()] == ["llmhost-guard.conf"]
    drop_in.remove()
    assert list(tmp_path.iterdir()) == []
