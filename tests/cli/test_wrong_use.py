"""Wrong input: one clear line on stderr that says what, where and what to do; exit 2; nothing on stdout."""

import os
import re
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.fakes.daemon import LLMHOST, environment


def llmhost(*arguments: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LLMHOST, *arguments], env=environment(env), capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), r"llmhost: error: .*COMMAND"),
        (("status", "--wach"), r"llmhost status: error: unrecognized arguments: --wach"),
        (("status", "--watch"), r"^llmhost: --watch needs a terminal to draw on"),
        (("serve", "--config", "/nonexistent.yml"), r"llmhost: /nonexistent\.yml: .*[Nn]o such file"),
        (("doctor", "--config", "/nonexistent.yml"), r"^llmhost: /nonexistent\.yml: .*[Nn]o such file"),
        (("check-config", "/nonexistent.yml"), r"/nonexistent\.yml: .*[Nn]o such file"),
        (("status", "--state-dir", "/dev/null/x"), r"^llmhost: .*/dev/null/x"),
        (
            ("clean", "--apply", "--kind", "cuda"),
            r"^llmhost: --kind cuda: what is cleaned is orphan, tracker, ",
        ),
    ],
)
def test_wrong_use_is_one_line_and_exits_2(arguments: tuple[str, ...], complaint: str) -> None:
    done = llmhost(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(complaint, done.stderr.splitlines()[-1]), done.stderr
    assert "Traceback" not in done.stderr
    assert "\x1b" not in done.stderr


@pytest.mark.parametrize("arguments", [("nope",), ("doctor", "a b"), ("status", "--config", "/")])
def test_wrong_use_exits_2_also_where_stderr_cannot_be_written(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    buffered = environment({"PYTHONUNBUFFERED": ""})  # as outside of containers
    done = subprocess.run([*LLMHOST, *arguments], env=buffered, stdout=subprocess.PIPE, stderr=writer, check=False)
    os.close(writer)
    assert (done.returncode, done.stdout) == (2, b"")
    for shell in ("2>/dev/full", "2>&-"):
        assert redirected(shell, *arguments).returncode == 2


def redirected(shell: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run with redirections of a shell, and with buffers, as outside of containers."""
    return subprocess.run(
        ["bash", "-c", f'"$@" {shell}', "bash", *LLMHOST, *arguments],
        env=environment({"PYTHONUNBUFFERED": ""}),
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_an_ascii_locale_gets_a_complaint_that_it_can_show() -> None:
    done = llmhost("doctor", "vllm@模型", env={"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"})
    assert done.returncode == 2
    assert "a unit name cannot have the character" in done.stderr
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


@pytest.mark.parametrize(
    "arguments",
    [("serve", "--once", "--log.level=error"), ("check-config",), ("status",), ("doctor",), ("status", "--help")],
)
def test_a_stdout_that_cannot_be_written_is_one_line(arguments: tuple[str, ...]) -> None:
    done = redirected(">/dev/full", *arguments)
    assert done.returncode == 3
    assert done.stderr.splitlines()[-1] == "llmhost: cannot write to stdout: No space left on device"
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [("check-config",), ("status",), ("doctor",)])
def test_a_closed_stdout_is_one_line(arguments: tuple[str, ...]) -> None:
    done = redirected(">&-", *arguments)
    assert (done.returncode, done.stderr.splitlines()[-1]) == (3, "llmhost: stdout is closed")


@pytest.mark.parametrize(
    "arguments", [("--help",), ("--version",), ("status", "--help"), ("serve", "--once", "--log.level=error")]
)
def test_a_reader_that_has_gone_is_no_fault(arguments: tuple[str, ...]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    buffered = environment({"PYTHONUNBUFFERED": ""})
    done = subprocess.run(
        [*LLMHOST, *arguments], env=buffered, stdout=writer, stderr=subprocess.PIPE, check=False, timeout=120
    )
    os.close(writer)
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_pipe_is_no_config_file(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    done = llmhost("check-config", str(tmp_path / "fifo"))
    assert done.returncode == 2
    assert done.stderr.endswith("fifo: is a pipe, not a file\n")
    shell = "exec \"$@\" /dev/fd/3 3< <(echo 'policy: {ready: 1h}')"
    command = ["bash", "-c", shell, "bash", *LLMHOST, "check-config"]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False, timeout=120)
    assert "ready: 1h" in done.stdout


def test_defaults_are_said_to_be_defaults() -> None:
    done = llmhost("check-config")
    assert done.returncode == 0
    assert done.stderr == "llmhost: there is no /etc/llmhost/llmhost.yml; these are the defaults\n"


@pytest.mark.parametrize(
    ("content", "why"),
    [(None, "No such file or directory"), ("", "has something else in it"), ("a b\x00", "has something else in it")],
)
def test_check_config_reads_the_token_files_too(tmp_path: Path, content: str | None, why: str) -> None:
    config, token = tmp_path / "llmhost.yml", tmp_path / "token"
    url = "http://127.0.0.1:1/metrics"
    config.write_text(f"engines: [{{unit: a, url: '{url}'}}, {{unit: b, url: '{url}', token_file: {token}}}]\n")
    if content is not None:
        token.write_text(content)
    done = llmhost("check-config", str(config))
    assert (done.returncode, done.stdout) == (2, "")
    (line,) = done.stderr.splitlines()
    assert line.startswith(f"{config}: engines[1].token_file: ")
    assert (str(token) in line, line.endswith(why)) == (True, True)
    token.write_text("secret\n")
    assert llmhost("check-config", str(config)).returncode == 0


def test_check_config_prints_what_is_in_force(tmp_path: Path) -> None:
    config = tmp_path / "llmhost.yml"
    config.write_text("policy: {orphan_grace: 1m}\n")
    done = llmhost("check-config", str(config))
    assert done.returncode == 0
    assert "resident: 1000MiB" in done.stdout
    assert "orphan_grace: 1m" in done.stdout
