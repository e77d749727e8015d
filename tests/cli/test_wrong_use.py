"""Wrong input: one clear line on stderr that says what, where and what to do; exit 2; nothing on stdout."""

import re
import socket
import subprocess
from pathlib import Path

import pytest
from tests.fakes.daemon import LLMHOST, environment

from llmhost import __version__


def llmhost(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*LLMHOST, *arguments], env=environment(), capture_output=True, text=True, check=False, timeout=30
    )


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), r"llmhost: error: .*COMMAND"),
        (("sevre",), r"llmhost: error: .*invalid choice: 'sevre'.*serve"),
        (("serve", "--conf", "x"), r"llmhost: error: unrecognized arguments: --conf x"),
        (("serve", "--config", "/nonexistent.yml"), r"llmhost: /nonexistent\.yml: .*[Nn]o such file"),
        (("serve", "--path.procfs", "/nonexistent"), r"--path\.procfs: /nonexistent is no directory"),
        (("serve", "--web.listen-address", "10061"), r"did you mean \":10061\"\?"),
        (("serve", "--web.listen-address", "127.0.0.1:99999"), r"the port is a number from 0 to 65535"),
        (("serve", "--log.level", "loud"), r"invalid choice: 'loud'"),
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


def test_help_and_version_go_to_stdout_within_80_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    for arguments in (("--help",), ("serve", "--help"), ("check-config", "--help")):
        done = llmhost(*arguments)
        assert done.returncode == 0
        assert done.stderr == ""
        assert max(len(line) for line in done.stdout.splitlines()) <= 80
    assert llmhost("--version").stdout == f"llmhost {__version__}\n"


def test_check_config_prints_what_is_in_force(tmp_path: Path) -> None:
    config = tmp_path / "llmhost.yml"
    config.write_text("policy: {orphan_grace: 1m}\n")
    done = llmhost("check-config", str(config))
    assert done.returncode == 0
    assert "resident: 1000MiB" in done.stdout
    assert "orphan_grace: 1m" in done.stdout
