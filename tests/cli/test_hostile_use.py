"""Closed and broken streams, odd names, odd terminals: one clear line, the right exit code, never a traceback."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.cli.test_status import host, llmhost, terminal
from tests.fakes.alone import Alone, alone
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.needs import needs, needs_root

__all__ = ["alone"]

Standing = tuple[list[str], dict[str, str]]


@pytest.fixture(name="incident", scope="module")
def fixture_incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with host("incident", tmp_path_factory.mktemp("incident")) as standing:
        yield standing


@pytest.fixture(name="tenants", scope="module")
def fixture_tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with host("two-tenants", tmp_path_factory.mktemp("tenants")) as standing:
        yield standing


def redirected(shell: str, *arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    """Run with streams as the shell has it, and with buffers, as outside of containers."""
    return subprocess.run(
        ["bash", "-c", f'"$@" {shell}', "bash", *LLMHOST, *arguments],
        env=environment({"PYTHONUNBUFFERED": "", **(env or {})}),
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )


def unread(*arguments: str, stream: str = "stdout", env: Mapping[str, str] | None = None) -> tuple[int, bytes]:
    """Run with a stream that nobody reads; give the exit code and what went to the other."""
    reader, writer = os.pipe()
    os.close(reader)
    streams = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE} | {stream: writer}
    done = subprocess.run(
        [*LLMHOST, *arguments],
        env=environment({"PYTHONUNBUFFERED": "", **(env or {})}),
        stdout=streams["stdout"],
        stderr=streams["stderr"],
        check=False,
        timeout=30,
    )
    os.close(writer)
    return done.returncode, done.stderr if stream == "stdout" else done.stdout


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("status", "--help"), ("doctor", "--help"), ("serve", "-h"), ("guard", "-h")],
)
def test_help_that_nobody_reads_to_its_end_is_no_fault(arguments: tuple[str, ...]) -> None:
    assert unread(*arguments) == (0, b"")


def test_help_that_cannot_be_printed_is_told() -> None:
    done = redirected(">/dev/full", "status", "--help")
    assert (done.returncode, done.stderr) == (3, "llmhost: cannot write to stdout: No space left on device\n")


@pytest.mark.parametrize(
    "arguments",
    [("nope",), ("status", "--nope"), ("doctor", "a b"), ("status", "--config", "/"), ("status", "--watch")],
)
def test_wrong_use_is_wrong_use_also_where_nobody_is_told(arguments: tuple[str, ...]) -> None:
    assert unread(*arguments, stream="stderr") == (2, b"")
    for shell in ("2>/dev/full", "2>&-"):
        assert redirected(shell, *arguments).returncode == 2


def test_who_stops_reading_has_no_say_in_what_was_found(incident: Standing, tenants: Standing) -> None:
    for command in ("status", "doctor"):
        for more in ((), ("--json",)):
            assert unread(command, *more, *incident[0], env=incident[1]) == (1, b"")
    assert unread("doctor", *tenants[0], env=tenants[1]) == (0, b"")


def test_an_ascii_locale_gets_a_complaint_that_it_can_show() -> None:
    done = llmhost("doctor", "vllm@模型", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert done.returncode == 2
    assert "a unit name cannot have the character" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("name", ["nope", "-x"])
def test_a_unit_that_does_not_exist_is_one_line(tenants: Standing, name: str) -> None:
    full = name if name.endswith(".service") else f"{name}.service"
    done = llmhost("doctor", *tenants[0], "--", "vllm@a", name, env=tenants[1])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"llmhost: there is no unit {full}\n"


def test_a_unit_named_twice_is_told_of_once(incident: Standing) -> None:
    options, env = incident
    done = llmhost("doctor", "--json", *options, "vllm-744b", "vllm-744b.service", env=env)
    checks = [load["check"] for load in json.loads(done.stdout)["findings"]]
    assert checks == sorted(set(checks), key=checks.index) != []


def test_without_a_bus_a_named_unit_cannot_be_told_of_and_it_says_why(alone: Alone) -> None:
    done = llmhost("doctor", "vllm", *alone.options, prefix=alone.prefix)
    assert (done.returncode, done.stderr) == (3, "")
    assert "systemd cannot be read (no bus:" in " ".join(done.stdout.split())
    for address in ("nonsense", "tcp:host=127.0.0.1,port=1", ""):
        env = {"DBUS_SYSTEM_BUS_ADDRESS": address}
        done = llmhost("doctor", "vllm", *alone.options, env=env, prefix=alone.prefix)
        assert (done.returncode, done.stderr) == (3, "")


def test_without_privilege_a_history_that_cannot_be_read_is_told(tmp_path: Path, alone: Alone) -> None:
    needs_root()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "history.json").write_text("{}")
    nobody = (needs("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    for command, code in (("status", 3), ("doctor", 3)):
        done = subprocess.run(
            [*alone.prefix, *nobody, *LLMHOST, command, *alone.options, "--state-dir", str(state)],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=30,
        )
        assert (done.returncode, done.stderr) == (code, "")
        assert "Permission denied" in " ".join(done.stdout.split())


def test_json_is_json_whatever_the_locale_and_the_terminal(incident: Standing) -> None:
    options, env = incident
    for more in ({"LC_ALL": "C", "PYTHONUTF8": "0"}, {"TERM": "xterm", "COLUMNS": "20"}, {"PYTHONIOENCODING": "ascii"}):
        for command in ("status", "doctor"):
            done = subprocess.run(
                ["bash", "-c", '"$0" "$@" | "$PYTHON" -m json.tool', *LLMHOST, command, "--json", *options],
                env=environment(env | more | {"PYTHON": sys.executable}),
                capture_output=True,
                text=True,
                check=False,
                timeout=30,
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert json.loads(done.stdout)["schema_version"] == 1


@pytest.mark.parametrize(("columns", "widest"), [(40, 40), (300, 120), (3, 40)])
def test_lines_fit_the_terminal_within_reason(incident: Standing, columns: int, widest: int) -> None:
    needs("setsid")
    options, env = incident
    for command in ("status", "doctor"):
        with terminal(command, *options, env=env, columns=columns) as shown:
            assert shown.rest() == 1
        lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.shown).replace("\r\n", "\n").splitlines()
        assert {line for line in lines if len(line) > widest and " " in line.strip()} == set()


def test_what_is_to_be_typed_is_never_cut_and_is_quoted_for_a_shell(tenants: Standing) -> None:
    needs("setsid")
    options, env = tenants
    with terminal("doctor", *options, env=env, columns=40) as shown:
        assert shown.rest() == 0
    (unit,) = re.findall(r"--install\s+('\S+')", shown.shown)
    typed = subprocess.run(["bash", "-c", f"printf %s {unit}"], capture_output=True, text=True, check=True).stdout
    assert typed == r"vllm@Qwen-Qwen3\x2d8B.service"
