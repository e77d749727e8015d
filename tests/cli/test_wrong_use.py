"""Wrong input: one clear line on stderr that says what, where and what to do; exit 2; nothing on stdout."""

import os
import re
import socket
import subprocess
from pathlib import Path

import pytest
from tests.fakes.daemon import LLMHOST, environment


def llmhost(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LLMHOST, *arguments], env=environment(), capture_output=True, text=True, check=False, timeout=30
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), r"llmhost: error: .*COMMAND"),
        (("serve", "--config", "/nonexistent.yml"), r"llmhost: /nonexistent\.yml: .*[Nn]o such file"),
        (("check-config", "/nonexistent.yml"), r"/nonexistent\.yml: .*[Nn]o such file"),
    ],
)
def test_wrong_use_is_told_and_exits_2(arguments: tuple[str, ...], complaint: str) -> None:
    done = llmhost(*arguments)
    assert done.returncode == 2
    assert done.stdout == ""
    assert re.search(complaint, done.stderr.splitlines()[-1]), done.stderr
    assert "Traceback" not in done.stderr


def test_a_bad_config_names_file_line_and_key(tmp_path: Path) -> None:
    config = tmp_path / "llmhost.yml"
    config.write_text("units:\n  patern: [vllm]\n")
    for command in (("serve", "--once", "--config"), ("check-config",)):
        done = llmhost(*command, str(config))
        assert done.returncode == 2
        (line,) = done.stderr.splitlines()
        assert line.endswith(f'{config}:2: units.patern: unknown key; did you mean "patterns"?')


def test_a_port_in_use_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = llmhost("serve", "--web.listen-address", f"127.0.0.1:{port}")
    assert done.returncode == 2
    assert re.fullmatch(rf"llmhost: .*127\.0\.0\.1:{port}.*in use.*\n", done.stderr), done.stderr


@pytest.mark.parametrize("command", [("serve", "--once"), ("check-config",)])
def test_what_cannot_be_printed_is_told_in_one_line(command: tuple[str, ...]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            [*LLMHOST, *command, "--log.level=error"] if command[0] == "serve" else [*LLMHOST, *command],
            env=environment(),
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=False,
            timeout=30,
        )
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "llmhost: cannot write to stdout: No space left on device"
    assert "Traceback" not in done.stderr


def test_a_closed_stdout_is_told_in_one_line() -> None:
    command = ["sh", "-c", 'exec "$@" >&-', "sh", *LLMHOST, "check-config"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=30)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "llmhost: stdout is closed"


def test_a_reader_that_has_gone_is_no_fault() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [*LLMHOST, "serve", "--once", "--log.level=error"],
        env=environment(),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
        timeout=30,
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_pipe_is_no_config_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    done = llmhost("check-config", str(tmp_path / "fifo"))
    assert done.returncode == 2
    assert done.stderr.endswith("fifo: is a pipe, not a file\n")
    shell = "exec \"$@\" /dev/fd/3 3< <(echo 'policy: {ready: 1h}')"
    command = ["bash", "-c", shell, "bash", *LLMHOST, "check-config"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=30)
    assert "ready: 1h" in done.stdout


def test_defaults_are_said_to_be_defaults() -> None:
    done = llmhost("check-config")
    assert done.returncode == 0
    assert done.stderr == "llmhost: there is no /etc/llmhost/llmhost.yml; these are the defaults\n"


def test_check_config_prints_what_is_in_force(tmp_path: Path) -> None:
    config = tmp_path / "llmhost.yml"
    config.write_text("policy: {orphan_grace: 1m}\n")
    done = llmhost("check-config", str(config))
    assert done.returncode == 0
    assert "resident: 1000MiB" in done.stdout
    assert "orphan_grace: 1m" in done.stdout
