"""`llmhost status` and `llmhost doctor`: the real commands on written hosts, in pipes and on terminals."""

import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.fakes.daemon import LLMHOST, environment
from tests.fakes.needs import needs
from tests.fakes.other_users import as_nobody, llmhost_for_all, open_path
from tests.fakes.written_history import history_of
from tests.hosts.written import read, standing

from llmhost.state.history_file import HistoryFile

__all__ = ["open_path"]

Standing = tuple[list[str], dict[str, str]]  # options and environment of a written host

ESCAPE = "\x1b"
LEAVE = "\x1b[?25h\x1b[?1049l"


def llmhost(
    *arguments: str, env: Mapping[str, str] | None = None, prefix: tuple[str, ...] = ()
) -> subprocess.CompletedProcess[str]:
    command = [*prefix, *LLMHOST, *arguments]
    return subprocess.run(command, env=environment(env), capture_output=True, text=True, check=False, timeout=120)


@contextlib.contextmanager
def host(name: str, directory: Path) -> Iterator[tuple[list[str], dict[str, str]]]:
    """Stand a written host up; gives the options and the environment that lead a command to it."""
    written = read(name)
    state = directory / "state"
    state.mkdir(parents=True)
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


@pytest.fixture(name="incident", scope="module")
def fixture_incident(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with host("incident", tmp_path_factory.mktemp("incident")) as standing:
        yield standing


@pytest.fixture(name="tenants", scope="module")
def fixture_tenants(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Standing]:
    with host("two-tenants", tmp_path_factory.mktemp("tenants")) as standing:
        yield standing


@dataclass(frozen=True, slots=True)
class Alone:
    """Namespaces in which a command sees no process and no shared memory but its own."""

    prefix: tuple[str, ...]  # of the command
    options: tuple[str, ...]  # of llmhost, which is to take its PID namespace for the host's


@pytest.fixture
def alone(open_path: Path) -> Alone:
    """Give namespaces, as root; else the command sees what there is."""
    config = open_path / "alone.yml"
    config.write_text("host: {pid_namespace: trust}\n")
    if os.geteuid() != 0:
        return Alone((), ("--config", str(config)))
    namespaces = (needs("unshare"), "--pid", "--fork", "--kill-child", "--mount", "--mount-proc")
    mount = 'mount -t tmpfs tmpfs /dev/shm && exec "$@"'
    return Alone((*namespaces, "sh", "-c", mount, "sh"), ("--config", str(config)))


def test_with_nothing_to_see_they_say_so(alone: Alone) -> None:
    done = llmhost("status", *alone.options, prefix=alone.prefix)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.splitlines()[0] == "cannot tell whether all is well"
    assert re.search("GPUs: no (library|device) ", done.stdout)
    assert "units: no bus" in done.stdout
    assert ESCAPE not in done.stdout
    document = json.loads(llmhost("status", "--json", *alone.options, prefix=alone.prefix).stdout)
    assert (document["schema_version"], document["health"], document["gpus"], document["units"]) == (
        1,
        "cannot_tell",
        None,
        None,
    )
    done = llmhost("doctor", *alone.options, prefix=alone.prefix)
    assert (done.returncode, done.stderr) == (3, "")
    assert done.stdout.splitlines()[-1] == "nothing found in what could be checked"


def test_the_incident_is_not_healthy_and_the_record_of_it_is_left_as_it_is(tmp_path: Path) -> None:
    with host("incident", tmp_path) as (options, env):
        before = {path.name: path.read_bytes() for path in (tmp_path / "state").iterdir()}
        done = llmhost("status", *options, env=env)
        assert (done.returncode, done.stderr) == (1, "")
        assert done.stdout.splitlines()[0] == "not healthy"
        assert "7 starts: 1 clean, 6 resident" in done.stdout
        assert "not startable: GPUs 0-7, each: 3.3 GiB free of 85.5 needed" in done.stdout
        document = json.loads(llmhost("status", "--json", *options, env=env).stdout)
        (unit,) = document["units"]
        assert unit["history"]["starts"] == {"manual": {"clean": 1}, "auto": {"resident": 6}}
        assert unit["startable"] == {"value": False}
        assert [short["gpu"] for short in unit["missing"]] == list("01234567")
        assert unit["missing"][0]["needed_bytes"] == int(0.9 * ((97871 - 622) << 20))
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


def test_notes_alone_are_no_findings(tenants: Standing) -> None:
    options, env = tenants
    done = llmhost("doctor", *options, env=env)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1] == "1 note"
    of_unit = llmhost("doctor", "vllm@a", "--json", *options, env=env)
    assert (of_unit.returncode, json.loads(of_unit.stdout)["findings"]) == (0, [])


@pytest.mark.parametrize("name", ["nope.service", "-x", "vllm@c"])
def test_a_unit_that_does_not_exist_is_one_line(tenants: Standing, name: str) -> None:
    full = name if name.endswith(".service") else f"{name}.service"
    done = llmhost("doctor", *tenants[0], "--", "vllm@a", name, env=tenants[1])
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"llmhost: there is no unit {full}\n"


def test_the_exit_status_is_that_of_the_findings_also_where_the_reader_has_gone(
    incident: Standing, tenants: Standing
) -> None:
    for (options, env), arguments, code in (
        (incident, ("status",), 1),
        (incident, ("doctor", "--json"), 1),
        (tenants, ("doctor",), 0),
    ):
        reader, writer = os.pipe()
        os.close(reader)
        buffered = environment({"PYTHONUNBUFFERED": "", **env})  # as outside of containers
        done = subprocess.run(
            [*LLMHOST, *arguments, *options], env=buffered, stdout=writer, stderr=subprocess.PIPE, check=False
        )
        os.close(writer)
        assert (done.returncode, done.stderr) == (code, b"")


def test_a_unit_named_twice_is_reported_once(incident: Standing) -> None:
    options, env = incident
    done = llmhost("doctor", "--json", *options, "vllm-744b", "vllm-744b.service", env=env)
    checks = [load["check"] for load in json.loads(done.stdout)["findings"]]
    assert checks == sorted(set(checks), key=checks.index) != []


def test_without_a_bus_a_named_unit_is_unknown_and_it_says_why(alone: Alone) -> None:
    done = llmhost("doctor", "vllm", *alone.options, prefix=alone.prefix)
    assert (done.returncode, done.stderr) == (3, "")
    assert "systemd cannot be read (no bus:" in " ".join(done.stdout.split())
    for address in ("nonsense", "tcp:host=127.0.0.1,port=1", ""):
        env = {"DBUS_SYSTEM_BUS_ADDRESS": address}
        done = llmhost("doctor", "vllm", *alone.options, env=env, prefix=alone.prefix)
        assert (done.returncode, done.stderr) == (3, "")


def test_without_privilege_an_unreadable_history_is_reported(tmp_path: Path, alone: Alone) -> None:
    unprivileged = as_nobody() + llmhost_for_all()
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    (state / "history.json").write_text("{}")
    for command, code in (("status", 3), ("doctor", 3)):
        done = subprocess.run(
            [*alone.prefix, *unprivileged, command, *alone.options, "--state-dir", str(state)],
            env=environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
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
                timeout=120,
            )
            assert (done.returncode, done.stderr) == (0, "")
            assert json.loads(done.stdout)["schema_version"] == 1


def test_an_encoding_that_lacks_a_character_is_no_fault(incident: Standing) -> None:
    options, env = incident
    done = llmhost("status", *options, env=env | {"PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (1, "")
    assert "vllm ? 1 core" in done.stdout


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
        needs("setsid")
        # a new session's leader gets the terminal as its own, so that ^C is a signal
        command = ["setsid", "--ctty", "--wait", *LLMHOST, *arguments]
        self.process = subprocess.Popen(command, env=kept, stdin=slave, stdout=slave, stderr=subprocess.PIPE)
        os.close(slave)
        self.shown = ""

    def until(self, pattern: str, seconds: float = 120.0) -> None:
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
    opened = Terminal(*arguments, **given)  # type: ignore[arg-type]
    try:
        yield opened
    finally:
        opened.close()


def test_a_terminal_gets_colour_and_its_width_used(incident: Standing) -> None:
    options, env = incident
    with terminal("status", *options, env=env, columns=100) as wide:
        assert wide.rest() == 1
    assert f"{ESCAPE}[31mnot healthy{ESCAPE}[0m" in wide.shown
    plain = re.sub(r"\x1b\[[0-9;]*m", "", wide.shown)
    assert ESCAPE not in plain
    assert 80 < max(len(line.rstrip()) for line in plain.splitlines()) <= 100


@pytest.mark.parametrize(
    ("command", "more"),
    [
        ("status", {"NO_COLOR": "1"}),
        ("status", {"TERM": "dumb"}),
        ("doctor", {"NO_COLOR": "1"}),
        ("doctor", {"TERM": ""}),
    ],
)
def test_no_colour_where_none_is_wanted(incident: Standing, command: str, more: dict[str, str]) -> None:
    options, env = incident
    with terminal(command, *options, env=env | more) as plainly:
        assert plainly.rest() == 1
    assert ESCAPE not in plainly.shown
    if command == "status":
        assert plainly.shown.startswith("not healthy\r\n")
        assert max(len(line) for line in plainly.shown.splitlines()) <= 80


@pytest.mark.parametrize(("columns", "widest"), [(40, 40), (300, 120), (3, 40)])
def test_lines_fit_the_terminal_within_reason(incident: Standing, columns: int, widest: int) -> None:
    options, env = incident
    for command in ("status", "doctor"):
        with terminal(command, *options, env=env, columns=columns) as shown:
            assert shown.rest() == 1
        lines = re.sub(r"\x1b\[[0-9;]*m", "", shown.shown).replace("\r\n", "\n").splitlines()
        assert {line for line in lines if len(line) > widest and " " in line.strip()} == set()


def test_what_is_to_be_typed_is_never_cut_and_is_quoted_for_a_shell(tenants: Standing) -> None:
    options, env = tenants
    with terminal("doctor", *options, env=env, columns=40) as shown:
        assert shown.rest() == 0
    (unit,) = re.findall(r"--install\s+('\S+')", shown.shown)
    typed = subprocess.run(["bash", "-c", f"printf %s {unit}"], capture_output=True, text=True, check=True).stdout
    assert typed == r"vllm@Qwen-Qwen3\x2d8B.service"


def test_watch_draws_in_place_until_ctrl_c_and_gives_the_terminal_back(incident: Standing) -> None:
    options, env = incident
    with terminal("status", "--watch", *options, env=env) as watch:
        watch.until(r"not healthy.*not healthy")
        watch.press("\x03")
        assert watch.rest() == 1  # as of the last look
        assert watch.shown.startswith("\x1b[?1049h\x1b[?25l\x1b[H")
        assert "\x1b[2J" not in watch.shown  # clearing first is what flickers
        assert re.sub(r"\^C", "", watch.shown).endswith(LEAVE)
        assert watch.process.stderr is not None
        assert watch.process.stderr.read() == b""


def test_watch_shows_what_fits_a_small_window() -> None:
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
    with terminal("status", "--watch") as watch:
        watch.until(r"cannot tell")
        children = Path(f"/proc/{watch.process.pid}/task/{watch.process.pid}/children").read_text().split()
        os.kill(int(children[0]) if children else watch.process.pid, signal.SIGTERM)
        assert watch.rest() == 128 + signal.SIGTERM
    assert watch.shown.endswith(LEAVE)
