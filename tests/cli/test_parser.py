"""The command line: each command's options as its typed request, and wrong use in one clear line."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.fakes.daemon import environment

from llmhost import __version__
from llmhost.cli.parser import parse
from llmhost.cli.requests import (
    CheckConfigRequest,
    CleanRequest,
    DoctorRequest,
    DriverPauseRequest,
    InstallRequest,
    ServeRequest,
    StatusRequest,
)
from llmhost.config.paths import Paths
from llmhost.guard.request import GuardRequest
from llmhost.model.ids import UnitId
from llmhost.state.driver_pause import MOST_SECONDS

COMMANDS = ("serve", "check-config", "status", "doctor", "clean", "release", "guard")
HOST = "--config c.yml --state-dir /s --run-dir /r --path.procfs /tmp --path.shm /"
GUARD = (
    "guard --unit vllm --gpus 0,1 --need-free 0.9 --max-used 2GiB --need-shm 1GiB --settle 2s --timeout 1m "
    "--on-unknown admit --on-fault refuse"
)
HOST_OPTIONS = {
    "config": Path("c.yml"),
    "state_directory": Path("/s"),
    "paths": Paths(procfs=Path("/tmp"), shm=Path("/"), run=Path("/r")),
}


@pytest.mark.parametrize(
    ("line", "request_"),
    [
        ("serve", ServeRequest()),
        (
            f"serve {HOST} --web.listen-address :1 --once --log.level debug",
            ServeRequest(**HOST_OPTIONS, listen=":1", once=True, log_level="debug"),  # type: ignore[arg-type]
        ),
        ("check-config", CheckConfigRequest()),
        ("check-config a.yml", CheckConfigRequest(file=Path("a.yml"))),
        ("status", StatusRequest()),
        (f"status --json {HOST}", StatusRequest(**HOST_OPTIONS, json=True)),  # type: ignore[arg-type]
        ("status --watch", StatusRequest(watch=True)),
        ("status a b.service", StatusRequest(units=(UnitId("a.service"), UnitId("b.service")))),
        ("doctor", DoctorRequest()),
        (
            f"doctor --json {HOST} a b.service",
            DoctorRequest(
                **HOST_OPTIONS,  # type: ignore[arg-type]
                json=True,
                units=(UnitId("a.service"), UnitId("b.service")),
            ),
        ),
        ("clean", CleanRequest()),
        (
            f"clean {HOST} --apply --unit a --unit b --kind nccl --kind orphan --older-than 1h --all-users --json",
            CleanRequest(
                **HOST_OPTIONS,  # type: ignore[arg-type]
                apply=True,
                units=(UnitId("a.service"), UnitId("b.service")),
                kinds=("nccl", "orphan"),
                older_than_seconds=3600.0,
                all_users=True,
                json=True,
            ),
        ),
        ("release", DriverPauseRequest(seconds=300.0)),
        ("release --for 90s --run-dir /r", DriverPauseRequest(seconds=90.0, paths=Paths(run=Path("/r")))),
        ("release --end --path.procfs /tmp", DriverPauseRequest(seconds=None, paths=Paths(procfs=Path("/tmp")))),
        ("guard", GuardRequest()),
        (
            f"{GUARD} --reap --clean-shm --config c.yml --state-dir /s --run-dir /r -- x -y",
            GuardRequest(
                unit="vllm",
                gpus=("0", "1"),
                need_free_ratio=0.9,
                max_used_bytes=2 << 30,
                need_shm_bytes=1 << 30,
                settle_seconds=2.0,
                timeout_seconds=60.0,
                admit_on_unknown=True,
                refuse_on_fault=True,
                reap=True,
                clean_shm=True,
                config=Path("c.yml"),
                state_directory=Path("/s"),
                run_directory=Path("/r"),
                command=("x", "-y"),
            ),
        ),
        ("guard --need-free 85GiB", GuardRequest(need_free_bytes=85 << 30)),
        ("guard --need-free 1", GuardRequest(need_free_ratio=1.0)),
        ("guard --install vllm", InstallRequest(unit="vllm")),
        ("guard --uninstall vllm@.service", InstallRequest(unit="vllm@.service", remove=True)),
    ],
)
def test_options_become_a_request(line: str, request_: object) -> None:
    assert parse(line.split()) == request_


NO_TIME = r'a time needs a unit \(ms, s, m, h or d\); did you mean "5s"\?'


@pytest.mark.parametrize(
    ("arguments", "complaint"),
    [
        ((), r"llmhost: error: .*COMMAND"),
        (("sevre",), r"llmhost: error: .*invalid choice: 'sevre'.*serve"),
        (("serve", "--conf", "x"), r"llmhost serve: error: unrecognized arguments: --conf x; did you mean --config\?$"),
        (("--loud", "status"), r"llmhost status: error: unrecognized arguments: --loud$"),
        (("guard", "--tiemout=5s"), r"guard: error: unrecognized arguments: --tiemout=5s; did you mean --timeout\?$"),
        (
            ("guard", "--tiemout", "5s", "--", "x", "-y"),
            r"unrecognized arguments: --tiemout 5s; did you mean --timeout\?$",
        ),
        (("status", "--path.sysfs", "/sys"), r"llmhost status: error: unrecognized arguments: --path.sysfs /sys"),
        (("status", "a", "--jsn", "b"), r"unrecognized arguments: --jsn b; did you mean --json\?$"),
        (("clean", "--aply"), r"llmhost clean: error: unrecognized arguments: --aply; did you mean --apply\?$"),
        (("serve", "--listen", ":1"), r"unrecognized arguments: --listen :1; did you mean --web\.listen-address\?$"),
        (("serve", "--port=1"), r"unrecognized arguments: --port=1; did you mean --web\.listen-address\?$"),
        (("--json", "status"), r"unrecognized arguments: --json before the command: options go behind it$"),
        (
            ("--config", "/c.yml", "status"),
            r"llmhost status: error: unrecognized arguments: --config before the command: ",
        ),
        (("--port", "1"), r"llmhost: error: unrecognized arguments: --port$"),
        (("--versio",), r"llmhost: error: unrecognized arguments: --versio; did you mean --version\?$"),
        (("stauts", "--json"), r"llmhost: error: invalid choice: 'stauts'; did you mean status\?$"),
        (("frob",), r"llmhost: error: invalid choice: 'frob' \(choose from serve, check-config, status, "),
        (("serve", "--path.procfs", "/nonexistent"), r"--path\.procfs: /nonexistent is no directory"),
        (("serve", "--web.listen-address", "10061"), r"did you mean \":10061\"\?"),
        (("serve", "--web.listen-address", "127.0.0.1:99999"), r"the port is a number from 0 to 65535"),
        (("serve", "--log.level", "loud"), r"invalid choice: 'loud'"),
        (("status", "vllm.timer"), r"only services can be watched; did you mean \"vllm\.service\"\?"),
        (("status", "--watch", "--json"), r"not allowed with argument"),
        (("status", "--json=yes"), r"argument --json: ignored explicit argument 'yes'"),
        (("status", "--run-dir"), r"argument --run-dir: expected one argument"),
        (("status", "--config", ""), r"argument --config: no file is named"),
        (("status", "--path.shm", ""), r"argument --path\.shm: no directory is named"),
        (("doctor", "--run-dir", ""), r"argument --run-dir: no directory is named"),
        (("doctor", ""), r"a unit name cannot be empty"),
        (("doctor", "vllm.timer"), r"only services can be watched; did you mean \"vllm\.service\"\?"),
        (("doctor", "vllm@"), r"vllm@\.service is a template; name one of its instances, as vllm@a\.service"),
        (("doctor", "vllm*"), r'a unit name cannot have the character "\*"'),
        (("doctor", "vllm/a"), r'a unit name cannot have the character "/"'),
        (("doctor", "a b"), r'a unit name cannot have the character " "'),
        (("doctor", "a\x1b[31mb"), r"a unit name cannot have the character '\\x1b'"),
        (("doctor", "a\nb"), r"a unit name cannot have the character '\\n'"),
        (("doctor", "vllm@模型"), r'a unit name cannot have the character "模"'),
        (("doctor", "x" * 300), r"a unit name has at most 255 characters"),
        (("doctor", "--unit", "x"), r"unrecognized arguments: --unit"),
        (("doctor", "--jso"), r"unrecognized arguments: --jso"),
        (("doctor", "--watch"), r"unrecognized arguments: --watch"),
        (("clean", "--unit", ""), r"argument --unit: "),
        (("clean", "--older-than", "5"), rf"argument --older-than: {NO_TIME}"),
        (("release", "--for", "5"), NO_TIME),
        (("release", "--for", "0s"), r"argument --for: from 1s to 1h"),
        (("release", "--for", "3601s"), r"argument --for: from 1s to 1h"),
        (("release", "--for", "-5m"), r"argument --for: "),
        (("release", "--for", "soon"), r"not a time"),
        (("release", "--for", "99999999999999999999999999999999999d"), r"argument --for: from 1s to 1h"),
        (("release", "--for", "5m", "--end"), r"not allowed with argument"),
        (("release", "gpu0"), r"unrecognized arguments: gpu0"),
        (("release", "--path.procfs", "/nonexistent"), r"/nonexistent is no directory"),
        (("guard", "--config", ""), r"argument --config: no file is named"),
        (("guard", "--run-dir", ""), r"argument --run-dir: no directory is named"),
        (("guard", "--state-dir", ""), r"argument --state-dir: no directory is named"),
        (("guard", "--need-free", "85"), r'a size needs a unit \(B, KiB, MiB, GiB or TiB\); did you mean "85MiB"\?'),
        (("guard", "--need-free", "0.0"), r"a ratio is above 0, and at most 1"),
        (("guard", "--settle", "1"), r'a time needs a unit \(ms, s, m, h or d\); did you mean "1s"\?'),
        (("guard", "--gpus", ","), r"names no GPU"),
        (("guard", "--on-unknown", "shrug"), r"invalid choice: 'shrug'"),
        (("guard", "--install", "a", "--uninstall", "a"), r"--install and --uninstall do not go together"),
    ],
)
def test_wrong_use_exits_with_2_and_names_the_mistake_last(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], complaint: str
) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(arguments)
    assert ended.value.code == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert re.search(complaint, err.splitlines()[-1]), err
    assert "\x1b" not in err


def test_a_slip_is_answered_by_two_lines_and_no_arguments_by_the_help(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["status", "--wach"])
    usage, mistake = capsys.readouterr().err.splitlines()
    assert usage == "usage: llmhost status [OPTION]... [UNIT]..."
    assert mistake.endswith("--wach; did you mean --watch?")
    with pytest.raises(SystemExit):
        parse([])
    said = capsys.readouterr().err.splitlines()
    assert said[0] == "usage: llmhost COMMAND [OPTION]..."
    assert any(line.startswith("    status ") for line in said)


@pytest.mark.parametrize("command", ["", *COMMANDS])
def test_help_fits_80_columns_and_states_the_exit_codes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    with pytest.raises(SystemExit) as ended:
        parse([*command.split(), "--help"])
    out, err = capsys.readouterr()
    assert (ended.value.code, err) == (0, "")
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "--path." not in out.partition("\nwhere to read")[0]  # apart, at the end
    assert ("exit status: 0 " in out) == (command not in {"", "serve", "check-config"})
    if not command:
        assert re.findall(r"^    ([a-z-]+)", out, re.MULTILINE) == list(COMMANDS)


def test_the_version_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["--version"])
    assert (ended.value.code, capsys.readouterr().out) == (0, f"llmhost {__version__}\n")


def test_the_longest_pause_is_the_one_that_the_exporter_takes() -> None:
    assert parse(["release", "--for", f"{MOST_SECONDS:.0f}s"]) == DriverPauseRequest(seconds=MOST_SECONDS)


def imported(*arguments: str) -> set[str]:
    """Parse in a process of its own; return the modules of llmhost.cli that it has imported by then."""
    program = (
        "import sys\nfrom llmhost.cli import command, main\nfrom llmhost.cli.parser import parse\n"
        f"parse({list(arguments)!r})\n"
        "print(*(name for name in sys.modules if name.startswith('llmhost.cli.')))"
    )
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=True, timeout=120)
    return {name.removeprefix("llmhost.cli.") for name in done.stdout.split()}


def test_the_guard_imports_nothing_of_other_commands_and_others_only_their_options() -> None:
    assert imported("guard", "--timeout", "5s") == {"main", "command", "parser", "argument_types", "exits", "output"}
    assert imported("status") == {"main", "command", "parser", "argument_types", "exits", "output", "requests"}
