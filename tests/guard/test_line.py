"""The guard's line on a real systemd: another user who wants to be root by it, and an llmhost that is gone."""

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.inside import NvmlInside
from tests.fakes.installed import GUARD_CONF, LLMHOST, PLACE, guard_argv, install_llmhost
from tests.fakes.needs import needs
from tests.guard.test_on_systemd import ENGINE

__all__ = ["booted_systemd"]

NOBODY = "65534"
UNIT = """
[Service]
Environment=LD_LIBRARY_PATH=/opt/nvml FAKE_NVML_STATE=/opt/nvml/state CUDA_VISIBLE_DEVICES=0
ExecStart=/opt/test/vllm serve model --gpu-memory-utilization 0.9
User=nobody
StandardError=append:/run/vllm-line.log
{more}
"""
DROP_IN = "/etc/systemd/system/vllm-line.service.d/llmhost-guard.conf"
# Each program that loads it leaves a file that is named by its user.
EVIL = """
#include <fcntl.h>
#include <stdio.h>
#include <unistd.h>
__attribute__((constructor)) static void reached(void) {
    char path[64];
    snprintf(path, sizeof path, "/run/reached/%d", (int)getuid());
    close(open(path, O_CREAT | O_WRONLY, 0644));
}
"""


class Line:
    """A service of another user's, on a GPU that is free or not."""

    def __init__(self, booted: Booted) -> None:
        self.booted = booted
        self._nvml = NvmlInside(booted)
        self.package = install_llmhost(booted)
        self.sh(f"rm -rf {PLACE}.whole; cp -a {PLACE} {PLACE}.whole; mkdir -p /opt/test /etc/llmhost")
        booted.write("/opt/test/vllm", ENGINE)
        self.sh("chmod 755 /opt/test/vllm")
        booted.write("/etc/llmhost/llmhost.yml", "host: {pid_namespace: trust}\n")
        booted.write_unit(
            "keeps-it-loaded.service", "[Unit]\nAfter=vllm-line.service\n[Service]\nExecStart=sleep 1000\n"
        )
        booted.systemctl("daemon-reload")
        booted.systemctl("start", "keeps-it-loaded.service")

    def sh(self, script: str) -> str:
        return self.booted.run(["sh", "-ec", script]).stdout

    def use(self, used: str) -> None:
        self._nvml.write([f"gpu 0 total=96G reserved=1G used={used}"])

    def unit(self, more: str = "", drop_in: str = "") -> None:
        self.sh(f"rm -f {DROP_IN}; mkdir -p {Path(DROP_IN).parent}")
        self.booted.write_unit("vllm-line.service", UNIT.format(more=more))
        if drop_in:
            self.booted.write(DROP_IN, drop_in)
        self.booted.systemctl("daemon-reload")

    def start(self) -> tuple[str, str]:
        """Start it, and wait for what becomes of that; give its state, and what was said."""
        self.sh("rm -f /run/vllm-line.log")
        self.booted.systemctl("start", "vllm-line.service", check=False)
        state = self.booted.show("vllm-line.service", "ActiveState")["ActiveState"]
        self.booted.systemctl("stop", "vllm-line.service")
        self.booted.systemctl("reset-failed", check=False)
        return state, self.sh("cat /run/vllm-line.log || true")

    def llmhost(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        return self.booted.run(["env", "-C", "/", *LLMHOST, *arguments], check=False)

    def findings(self) -> list[dict[str, str]]:
        """Give what `doctor` has on the unit's guard."""
        found = json.loads(self.llmhost("doctor", "vllm-line.service", "--json").stdout)["findings"]
        return [finding for finding in found if finding["check"] == "guard-exposed"]


@pytest.fixture(scope="module")
def module_line(booted_systemd: Booted) -> Iterator[Line]:
    yield Line(booted_systemd)
    booted_systemd.systemctl("stop", "keeps-it-loaded.service")
    booted_systemd.run(
        ["sh", "-c", f"rm -rf {PLACE} {PLACE}.whole /etc/systemd/system/vllm-line.service* /etc/systemd/system/keeps-*"]
    )
    booted_systemd.run(["rm", "-rf", "/etc/llmhost/llmhost.yml", "/home/llm"])
    booted_systemd.systemctl("daemon-reload")


@pytest.fixture
def line(module_line: Line) -> Line:
    module_line.use("600M")
    module_line.sh(f"rm -rf {PLACE}; cp -a {PLACE}.whole {PLACE}")
    return module_line


@pytest.fixture
def evil(line: Line) -> str:
    """Give a library in the home of the service's user; who loads it is named in /run/reached."""
    line.sh("rm -rf /home/llm /run/reached; mkdir -p /home/llm; mkdir -m 777 /run/reached")
    library = line.booted.root / "home/llm/evil.so"
    compiler = [needs("gcc"), "-shared", "-fPIC", "-xc", "-", "-o", str(library)]
    subprocess.run(compiler, input=EVIL, text=True, check=True)
    line.sh("echo LD_PRELOAD=/home/llm/evil.so >/home/llm/env; chown -R nobody /home/llm")
    return "EnvironmentFile=/home/llm/env"


def test_a_services_user_does_not_become_root_by_its_environment_file(line: Line, evil: str) -> None:
    line.unit(evil)
    refused = line.llmhost("guard", "--install", "vllm-line")
    assert refused.returncode == 1
    assert refused.stderr == (
        "llmhost: vllm-line.service: nothing is written: root would run what others can change: "
        "EnvironmentFile=/home/llm/env: /home/llm belongs to nobody. "
        "Make that root's alone, or let the guard be the service's user, by --as-user\n"
    )
    assert line.sh(f"ls {Path(DROP_IN).parent}") == ""
    assert line.llmhost("guard", "--install", "vllm-line", "--as-user").returncode == 0
    assert line.findings() == []
    state, said = line.start()
    assert (state, "free after" in said) == ("active", True), said
    assert line.sh("ls /run/reached") == f"{NOBODY}\n", "the user's own processes, and none of root's"


def test_what_was_installed_before_is_found_by_doctor(line: Line, evil: str) -> None:
    """And the attack is real: a guard that is written by hand runs what the user wants, as root."""
    line.unit(evil, GUARD_CONF.read_text())
    (finding,) = line.findings()
    assert (finding["severity"], finding["why"]) == (
        "error",
        "EnvironmentFile=/home/llm/env: /home/llm belongs to nobody",
    )
    assert "llmhost guard --install vllm-line.service --as-user" in finding["remedy"]
    _, said = line.start()
    assert line.sh("ls /run/reached") == f"0\n{NOBODY}\n"
    assert "root goes by what others can change: LD_PRELOAD=/home/llm/evil.so: /home/llm belongs to nobody" in said


@pytest.mark.usefixtures("evil")
def test_a_folder_of_libraries_in_a_home_is_refused(line: Line) -> None:
    line.unit("Environment=LD_LIBRARY_PATH=/opt/cuda/lib64:/home/llm/lib")
    refused = line.llmhost("guard", "--install", "vllm-line")
    assert refused.returncode == 1
    assert "Environment=LD_LIBRARY_PATH=/opt/cuda/lib64:/home/llm/lib: /home/llm belongs to nobody" in refused.stderr
    line.unit()
    line.booted.systemctl("set-environment", "GCONV_PATH=/home/llm/gconv")
    try:
        refused = line.llmhost("guard", "--install", "vllm-line")
    finally:
        line.booted.systemctl("unset-environment", "GCONV_PATH")
    assert "systemctl show-environment has GCONV_PATH=/home/llm/gconv: /home/llm belongs to nobody" in refused.stderr
    line.unit("Environment=LD_LIBRARY_PATH=/opt/cuda/lib64")
    assert line.llmhost("guard", "--install", "vllm-line").returncode == 0
    assert line.findings() == []


def test_a_root_directory_holds_in_spite_of_the_plus(line: Line) -> None:
    line.unit("RootDirectory=/srv/root")
    for option in ((), ("--as-user",)):
        refused = line.llmhost("guard", "--install", "vllm-line", *option)
        assert refused.returncode == 1
        assert "the guard would be looked for in /srv/root, as RootDirectory= and RootImage= hold" in refused.stderr


def test_a_python_of_another_users_is_not_put_before_a_service(line: Line) -> None:
    line.unit()
    line.sh(f"chown nobody {line.package}/cli")
    refused = line.llmhost("guard", "--install", "vllm-line")
    assert (refused.returncode, f"{line.package}/cli belongs to nobody" in refused.stderr) == (1, True)
    assert line.sh(f"ls {Path(DROP_IN).parent}") == ""


def test_the_units_that_have_the_drop_in_are_listed(line: Line) -> None:
    line.unit()
    assert line.llmhost("guard", "--list").stdout == ""
    line.llmhost("guard", "--install", "vllm-line")
    assert line.llmhost("guard", "--list").stdout == "vllm-line.service\n"


GONE = "llmhost cannot be run by /opt/llmhost/bin/python: the start of vllm-line.service"
HALF = "llmhost is half installed, or half replaced ("
ABSENCES = {
    "all of it is gone": ("rm -r /opt/llmhost", GONE),
    "Python is gone, as after an upgrade of the system": ("ln -sfn /usr/bin/python3.0 /opt/llmhost/bin/python3", GONE),
    "Python cannot be executed": ("cd /opt/llmhost/bin; rm python; cp python3 python; chmod 644 python", GONE),
    "Python is of another machine": ("cd /opt/llmhost/bin; rm python; echo x >python; chmod 755 python", GONE),
    "the package is gone": ("rm -r {package}", GONE),
    "a folder of it is": ("rm -r {package}/cli", GONE),
    "a part of it is of another version": ("echo 'run = None' >{package}/cli/guard.py", HALF),
    "a dependency is gone": ("rm -r {package}/../dbus_next", HALF),
    "the library of the driver's child is": ("rm {package}/../pynvml.py", HALF),
    **{
        f"{module} is half written": (
            f"echo 'def (' >{{package}}/{module}",
            GONE if module == "cli/main.py" else HALF,
        )
        for module in (
            *("cli/main.py", "cli/parser.py", "cli/guard.py"),
            *("decide/guard/machine.py", "model/ids.py", "sources/nvml/child/worker.py"),
        )
    },
}


@pytest.mark.parametrize("case", ABSENCES)
def test_a_service_starts_without_an_llmhost_that_is_gone_or_half_replaced(line: Line, case: str) -> None:
    """Its GPU is not free: a guard that worked would refuse the start."""
    script, reason = ABSENCES[case]
    line.use("80G")
    line.sh(script.format(package=line.package))
    for option, state, then in (("", "active", "goes on"), (" --on-fault=refuse", "failed", "is refused, as")):
        ours = "-m llmhost guard"
        line.unit(drop_in=GUARD_CONF.read_text().replace(f" {ours}\n", f" {ours} --timeout 1s{option}\n"))
        found, said = line.start()
        assert (found, reason in said, then in said) == (state, True, True), said
        assert "this is a bug" not in said


def test_a_guard_that_is_whole_refuses_that_start(line: Line) -> None:
    line.use("80G")
    line.unit(drop_in=GUARD_CONF.read_text().replace("llmhost guard\n", "llmhost guard --timeout 1s\n"))
    state, said = line.start()
    assert (state, "held after" in said) == ("failed", True), said


def test_the_journal_gets_a_warning() -> None:
    argv = guard_argv("vllm.service", "/nonexistent/python")
    for variables, prefix in (({"JOURNAL_STREAM": "8:1"}, "<4>"), ({}, "")):
        done = subprocess.run(argv, env=variables, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, "")
        assert done.stderr == (
            f"{prefix}llmhost cannot be run by /nonexistent/python: the start of vllm.service goes on without its "
            "guard. Install llmhost anew, or remove the drop-in (systemctl cat vllm.service).\n"
        )
