"""`llmhost status` and `llmhost doctor` as people and scripts meet them: the real commands, also on a real terminal."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest
from tests.fakes.alone import Alone, alone
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.needs import needs, needs_root
from tests.fakes.written_history import history_of
from tests.hosts.written import read, standing

from llmhost.state.history_file import HistoryFile

__all__ = ["alone"]

ESCAPE = "\x1b"
LEAVE = "\x1b[?25h\x1b[?1049l"


def llmhost(
    *arguments: str, env: Mapping[str, str] | None = None, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    command = [*prefix, *LLMHOST, *arguments]
    return subprocess.run(command, env=environment(env), capture_output=True, text=True, check=False, timeout=30)


@contextlib.contextmanager
def host(name: str, directory: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Stand a written host up; gives the options and the environment that lead a command to it."""
    written = read(name)
    state = directory / "state"
    state.mkdir()
    store = HistoryFile(state)
    store.save(history_of(written.first.get("history", {})), durable=False)
    store.close()
    with standing(written, directory) as (stands, _):
        config = directory / "llmhost.yml"
        config.write_text(stands.config_text)
        options = ["--config", str(config), "--path.procfs", str(stands.procfs), "--path.shm", str(stands.shm)]
        if not stands.shm.is_dir():
            options = options[:-2]
        yield (
            [*options, "--state-dir", str(state)],
            stands.environment | {"DBUS_SYSTEM_BUS_ADDRESS": stands.bus_address},
        )


def test_with_nothing_to_see_they_say_so(alone: Alone) -> None:
    done = llmhost("status", *alone.options, prefix=alone.prefix)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.splitlines()[0] == "cannot tell whether all is well"
    assert "GPUs: no library" in done.stdout
    assert "units: no bus" in done.stdout
    assert ESCAPE not in done.stdout
    told = json.loads(llmhost("status", "--json", *alone.options, prefix=alone.prefix).stdout)
    assert (told["schema_version"], told["health"], told["gpus"], told["units"]) == (1, "cannot_tell", None, None)
    done = llmhost("doctor", *alone.options, prefix=alone.prefix)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.splitlines()[-1] == "nothing found in what could be checked"


def test_the_incident_is_not_healthy_and_the_record_of_it_is_left_as_it_is(tmp_path: Path) -> None:
    with host("incident", tmp_path) as (options, env):
        before = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}
        done = llmhost("status", *options, env=env)
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.splitlines()[0] == "not healthy"
        told = json.loads(llmhost("status", "--json", *options, env=env).stdout)
        assert (told["schema_version"], told["health"]) == (1, "findings")
        doctor = llmhost("doctor", *options, env=env)
        assert (doctor.returncode, doctor.stderr) == (1, "")
        assert doctor.stdout.splitlines()[-1] == "2 errors, 1 warning"
        assert {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()} == before


def test_a_healthy_host_is_0_with_what_its_engines_do(tmp_path: Path) -> None:
    with host("engine-of-each-kind", tmp_path) as (options, env):
        done = llmhost("status", *options, env=env)
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines()[0] == "healthy"
        # the counters of a written host stand still
        assert re.search(r"http://127\.0\.0\.1:\d+: qwen, 0 tokens/s, 3 running, 6 waiting", done.stdout)


def test_notes_alone_are_no_findings(tmp_path: Path) -> None:
    with host("two-tenants", tmp_path) as (options, env):
        done = llmhost("doctor", *options, env=env)
        assert done.returncode == 0
        assert done.stdout.splitlines()[-1] == "1 note"
        one = llmhost("doctor", "vllm@a", "--json", *options, env=env)
        assert (one.returncode, json.loads(one.stdout)["findings"]) == (0, [])
        missing = llmhost("doctor", "vllm@c", *options, env=env)
        assert (missing.returncode, missing.stdout) == (2, "")
        assert missing.stderr == "llmhost: there is no unit vllm@c.service\n"


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        (("status", "--wach"), r"llmhost status: error: unrecognized arguments: --wach"),
        (("status", "--watch"), r"^llmhost: --watch needs a terminal to draw on"),
        (("status", "--config", "/nonexistent.yml"), r"^llmhost: /nonexistent\.yml: .*[Nn]o such file"),
        (("status", "--state-dir", "/dev/null/x"), r"^llmhost: .*/dev/null/x"),
        (("doctor", "--config", "/nonexistent.yml"), r"^llmhost: /nonexistent\.yml: .*[Nn]o such file"),
    ],
)
def test_wrong_use_is_told_and_exits_2(arguments: tuple[str, ...], complaint: str) -> None:
    done = llmhost(*arguments)
    assert (done.returncode, done.stdout) == (2, "")
    assert re.search(complaint, done.stderr.splitlines()[-1]), done.stderr


@pytest.mark.parametrize("command", ["status", "doctor"])
def test_what_cannot_be_printed_is_told(command: str) -> None:
    closed = ["sh", "-c", 'exec "$@" >&-', "sh", *LLMHOST, command]
    done = subprocess.run(closed, env=environment(), capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (3, "llmhost: stdout is closed\n")
    full = ["sh", "-c", 'exec "$@" >/dev/full', "sh", *LLMHOST, command]
    done = subprocess.run(full, env=environment(), capture_output=True, text=True, check=False, timeout=30)
    assert (done.returncode, done.stderr) == (3, "llmhost: cannot write to stdout: No space left on device\n")
    reader, writer = os.pipe()
    os.close(reader)
    gone = subprocess.run([*LLMHOST, command], env=environment(), stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (gone.returncode, gone.stderr) == (3, b""), "who reads it has no say in what was found"


def test_an_encoding_that_lacks_a_character_is_no_fault(tmp_path: Path) -> None:
    with host("incident", tmp_path) as (options, env):
        done = llmhost("status", *options, env=env | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "vllm ? 1 core" in done.stdout


def test_they_run_without_any_privilege(alone: Alone) -> None:
    needs_root()
    nobody = (needs("setpriv"), "--reuid=65534", "--regid=65534", "--clear-groups", "--")
    for command in ("status", "doctor"):
        done = llmhost(command, *alone.options, prefix=(*alone.prefix, *nobody))
        assert (done.returncode, done.stderr) == (3, "")


class Terminal:
    """A command on a pseudo-terminal of its own, which it controls."""

    def __init__(
        self, *arguments: str, env: Mapping[str, str] | None = None, columns: int = 80, rows: int = 60
    ) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        kept = environment({"TERM": "xterm-256color"} | dict(env or {}))
        for name in ("COLUMNS", "LINES", *(() if env and "NO_COLOR" in env else ("NO_COLOR",))):
            kept.pop(name, None)
        # a new session's leader gets the terminal as its own, so that ^C is a signal
        command = ["setsid", "--ctty", "--wait", *LLMHOST, *arguments]
        self.process = subprocess.Popen(command, env=kept, stdin=slave, stdout=slave, stderr=subprocess.PIPE)
        os.close(slave)
        self.shown = ""

    def until(self, pattern: str, seconds: float = 20.0) -> None:
        """Read until the pattern was shown, or the command has let go of the terminal."""
        end = time.monotonic() + seconds
        while not re.search(pattern, self.shown, re.DOTALL):
            assert time.monotonic() < end, self.shown
            if not self._read():
                return

    def _read(self) -> bool:
        try:
            piece = os.read(self._master, 65536)
        except OSError:  # EIO: nobody has it open
            return False
        self.shown += piece.decode()
        return bool(piece)

    def press(self, key: str) -> None:
        os.write(self._master, key.encode())

    def rest(self) -> int:
        while self._read():
            pass
        return self.process.wait(20)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        assert self.process.stderr is not None
        self.process.stderr.close()
        os.close(self._master)


@contextlib.contextmanager
def terminal(*arguments: str, **given: object) -> Iterator[Terminal]:
    one = Terminal(*arguments, **given)  # type: ignore[arg-type]
    try:
        yield one
    finally:
        one.close()


def test_a_terminal_gets_colour_and_its_width_used(tmp_path: Path) -> None:
    with host("incident", tmp_path) as (options, env):
        with terminal("status", *options, env=env, columns=100) as wide:
            assert wide.rest() == 1
        assert f"{ESCAPE}[31mnot healthy{ESCAPE}[0m" in wide.shown
        plain = re.sub(r"\x1b\[[0-9;]*m", "", wide.shown)
        assert ESCAPE not in plain
        assert 80 < max(len(line.rstrip()) for line in plain.splitlines()) <= 100
        for more in ({"NO_COLOR": "1"}, {"TERM": "dumb"}, {"TERM": ""}):
            with terminal("status", *options, env=env | more) as plainly:
                assert plainly.rest() == 1
            assert ESCAPE not in plainly.shown
            assert plainly.shown.startswith("not healthy\r\n")
            assert max(len(line) for line in plainly.shown.splitlines()) <= 80


def test_watch_draws_in_place_until_ctrl_c_and_gives_the_terminal_back(tmp_path: Path) -> None:
    needs("setsid")
    with host("incident", tmp_path) as (options, env), terminal("status", "--watch", *options, env=env) as watch:
        watch.until(r"not healthy.*not healthy")
        watch.press("\x03")
        assert watch.rest() == 1  # as of the last look
        assert watch.shown.startswith("\x1b[?1049h\x1b[?25l\x1b[H")
        assert "\x1b[2J" not in watch.shown  # clearing first is what flickers
        assert re.sub(r"\^C", "", watch.shown).endswith(LEAVE)
        assert watch.process.stderr is not None
        assert watch.process.stderr.read() == b""


def test_watch_shows_what_fits_a_small_window() -> None:
    needs("setsid")
    with terminal("status", "--watch", columns=60, rows=8) as watch:
        watch.until(r"more lines")
        watch.press("\x03")
        assert watch.rest() == 3
    first = watch.shown.split("\x1b[H")[1].split("\x1b[J")[0]
    lines = re.sub(r"\x1b\[[0-9;]*[mK]", "", first).split("\r\n")
    assert len(lines) == 8  # seven, and nothing after the last
    assert lines[-1] == ""
    assert max(len(line) for line in lines) <= 60


def test_watch_gives_the_terminal_back_also_when_it_is_ended() -> None:
    needs("setsid")
    with terminal("status", "--watch") as watch:
        watch.until(r"cannot tell")
        children = Path(f"/proc/{watch.process.pid}/task/{watch.process.pid}/children").read_text().split()
        os.kill(int(children[0]) if children else watch.process.pid, signal.SIGTERM)
        assert watch.rest() == 128 + signal.SIGTERM
    assert watch.shown.endswith(LEAVE)
