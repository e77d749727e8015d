"""Lines before a start that run the guard, found as a unit's command is read."""

import shlex
from pathlib import Path

import pytest

from llmhost.derive.command import guard_in, is_guard


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("llmhost guard", "llmhost guard"),
        ("/opt/llmhost/bin/python -I -m llmhost guard --reap", "/opt/llmhost/bin/python -I -m llmhost guard --reap"),
        ("/bin/sh -c 'llmhost guard || exit 1'", "llmhost guard"),
        (
            "/bin/sh -c '/opt/l/bin/llmhost guard --timeout 60s && exit 0; exit 3'",
            "/opt/l/bin/llmhost guard --timeout 60s",
        ),
        ("bash -ec 'set -o pipefail; exec llmhost guard 2>&1 | tee /run/guard.log'", "llmhost guard"),
        ("sh -c 'if ! llmhost guard; then sleep 5; exit 1; fi'", "llmhost guard"),
        ("timeout 300 env A=b python3 -m llmhost guard", "python3 -m llmhost guard"),
        ("flock /run/lock sh -c 'nice llmhost guard'", "llmhost guard"),
        ("bash -c 'exec llmhost guard -- vllm serve m'", "llmhost guard -- vllm serve m"),
        ("sh -c '$HOME/bin/llmhost guard'", "\0/bin/llmhost guard"),
        ("/usr/local/bin/logged llmhost guard", "/usr/local/bin/logged llmhost guard"),
        ("sh -c 'echo llmhost guard; true'", ""),
        ("/bin/echo guard llmhost", ""),
        ("sh -c 'systemctl is-active llmhost || guard'", ""),
        ("llmhost status", ""),
        ("test -e /run/llmhost/guard", ""),
    ],
)
def test_a_guard_is_found_behind_shells_and_wrappers(command: str, line: str) -> None:
    argv = tuple(shlex.split(command))
    assert " ".join(guard_in(argv)) == line
    assert is_guard(argv) is bool(line)


def test_the_shipped_guard_is_found_with_its_python() -> None:
    (line,) = [
        line.removeprefix("ExecStartPre=+").replace("$$", "$")
        for line in (Path(__file__).parents[2] / "systemd/guard.conf").read_text().replace("\\\n", "").splitlines()
        if line.startswith("ExecStartPre=")
    ]
    argv = tuple(shlex.split(line))
    assert guard_in(argv) == argv
    assert argv[3:] == ("/opt/llmhost/bin/python", "-I", "-m", "llmhost", "guard")
