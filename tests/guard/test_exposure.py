"""What others than root may change of a guard's line: each way, on real files of another user's. As root."""

import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.fakes.needs import missing, needs_root

from llmhost.guard.exposure import ANY_INSTANCE, environment_exposures, guard_exposures, python_exposures
from llmhost.model.sandbox import Sandbox
from llmhost.model.unit import UnitSettings

NOBODY = 65534
LLM = Sandbox(user="nobody")
ROOTS = "/usr/lib"


@pytest.fixture
def home() -> Iterator[Path]:
    """Give a folder of the service's user, below one of root's that is not in /tmp."""
    needs_root()
    with tempfile.TemporaryDirectory(dir="/opt") as top:
        folder = Path(top) / "home"
        folder.mkdir()
        os.chown(folder, NOBODY, NOBODY)
        yield folder


def written(path: Path, text: str = "", *, owner: int = 0) -> Path:
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
    os.chown(path, owner, owner)
    return path


def sh(folder: Path, script: str) -> None:
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True)


def of_environment(settings: UnitSettings) -> str:
    return "; ".join(environment_exposures(settings))


# HOME stands for the folder of the service's user, ROOT for one of root's with a library of another user's in it.
STEERS = (
    "LD_PRELOAD=HOME/evil.so",
    "LD_PRELOAD=libjemalloc.so.2 HOME/evil.so",
    "LD_AUDIT=/usr/lib/audit.so:HOME/evil.so",
    "LD_LIBRARY_PATH=HOME/lib",
    "LD_LIBRARY_PATH=/usr/lib;HOME",
    "LD_LIBRARY_PATH=ROOT",
    "LD_DEBUG_OUTPUT=HOME/trace",
    "LD_PROFILE_OUTPUT=HOME",
    "GCONV_PATH=HOME/gconv",
    "LOCPATH=/usr/lib/locale:HOME",
    "NLSPATH=HOME/%L/%N.cat",
    "TZ=:HOME/zone",
    "TZDIR=HOME",
    "MALLOC_TRACE=HOME/trace",
    "HOSTALIASES=HOME/hosts",
    "BASH_ENV=HOME/rc",
)
HARMLESS = (
    "LD_PRELOAD=libjemalloc.so.2",
    "LD_LIBRARY_PATH=/usr/lib:",  # the working directory, which is /
    "LD_BIND_NOW=1",
    "LD_LIBRARY_PATH=",
    "GLIBC_TUNABLES=glibc.malloc.check=3",
    "TZ=Europe/Berlin",
    "TZ=UTC",
    "LANG=C.UTF-8",
    "TMPDIR=HOME",
    "HOME=HOME",  # of no account before the guard has dropped it
    "PATH=HOME/bin:/usr/bin",
    "PYTHONPATH=HOME",  # -I
    "OPENSSL_CONF=HOME/openssl.cnf",
)


def variable(given: str, home: Path) -> tuple[str, str]:
    folder = home.parent / "libraries"
    if "ROOT" in given:
        written(folder / "libc.so.6", owner=NOBODY)
    name, _, value = given.partition("=")
    return name, value.replace("HOME", str(home)).replace("ROOT", str(folder))


@pytest.mark.parametrize("given", STEERS)
def test_a_variable_that_leads_to_anothers_files_is_found_in_the_unit_and_in_its_files(home: Path, given: str) -> None:
    name, value = variable(given, home)
    in_unit = of_environment(UnitSettings(environment=((name, value),), sandbox=LLM))
    assert in_unit.startswith(f"Environment={name}={value}: {home.parent}/")
    assert in_unit.endswith(" belongs to nobody")
    file = written(home.parent / "env", f'# of root\nA=1\n{name}="{value}"\n')
    in_file = of_environment(UnitSettings(environment_files=(str(file),), sandbox=LLM))
    assert in_file.startswith(f"EnvironmentFile={file} has {name}={value}: ")


@pytest.mark.parametrize("given", HARMLESS)
def test_a_variable_that_steers_nothing_before_the_guard_drops_it_is_none(home: Path, given: str) -> None:
    assert of_environment(UnitSettings(environment=(variable(given, home),), sandbox=LLM)) == ""


@pytest.mark.parametrize("given", ["LD_LIBRARY_PATH=/usr/lib:", "LD_LIBRARY_PATH=lib", "GCONV_PATH=:/usr/lib"])
def test_an_empty_or_relative_part_is_in_the_working_directory(home: Path, given: str) -> None:
    settings = UnitSettings(environment=(variable(given, home),), sandbox=LLM, working_directory=f"!{home}")
    assert f"{home} belongs to nobody" in of_environment(settings)


def test_what_the_loader_fills_in_cannot_be_judged(home: Path) -> None:
    settings = UnitSettings(environment=(("LD_LIBRARY_PATH", "$ORIGIN/../lib"),), sandbox=LLM)
    assert of_environment(settings).endswith(": nobody can tell where $ORIGIN/../lib leads")


# What is done in the folder that has `home`, the file that the unit names, and what is said.
FILES = {
    "of another user": ("touch env; chown nobody env", "TOP/env", "env belongs to nobody"),
    "in another user's folder": ("touch home/env", "TOP/home/env", "home belongs to nobody"),
    "not there, in another user's folder": ("", "TOP/home/env", "home belongs to nobody"),
    "by a pattern in another user's folder": ("", "TOP/home/*.env", "home belongs to nobody"),
    "by a pattern for all homes": ("", "TOP/*/env", "home belongs to nobody"),
    "by a pattern that matches another user's": ("touch b.env; chown nobody b.env", "TOP/[ab].env", "b.env belongs to"),
    "of each instance of a template": ("", f"TOP/{ANY_INSTANCE}/env", "home belongs to nobody"),
    "writable by all": ("touch env; chmod 666 env", "TOP/env", "env is writable by everybody"),
    "by a link of another user's": ("ln -s /etc/passwd env; chown -h nobody env", "TOP/env", "env belongs to nobody"),
    "in a folder that is emptied now and then": (
        "mkdir -m 1777 shared; touch shared/env",
        "TOP/shared/env",
        "everybody may make it anew when",
    ),
    "not there, in /tmp": ("", "/tmp/llmhost-no-such.env", "/tmp/llmhost-no-such.env is missing"),
    "in the unit's own folder, which systemd makes": ("", "/run/llmhost-own/env", "systemd gives /run/llmhost-own to"),
}


@pytest.mark.parametrize("case", FILES)
def test_an_environment_file_that_another_user_may_change_or_make_is_found(home: Path, case: str) -> None:
    script, file, why = FILES[case]
    sh(home.parent, script)
    files = (file.replace("TOP", str(home.parent)),)
    settings = UnitSettings(environment_files=files, sandbox=LLM, own_directories=("/run/llmhost-own",))
    assert why in of_environment(settings)


def test_environment_files_of_roots_are_none(home: Path) -> None:
    (home.parent / "etc").mkdir()
    written(home.parent / "etc/a.env", "A=1\\\nLD_PRELOAD=x\n;LD_AUDIT=/home/x\nbroken 'quote\n")
    files = ("/etc/default/llmhost-no-such", f"{home.parent}/etc/*.env", "/run/llmhost-test-no-such/env")
    assert of_environment(UnitSettings(environment_files=files, sandbox=LLM)) == ""


def venv(place: Path) -> Path:
    """Make a virtualenv, with a stand-in for llmhost, that has this machine's Python; give its python."""
    python = Path(sys.base_prefix) / "bin/python3"
    subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)
    written(packages(place) / "llmhost/__init__.py")
    return place / "bin/python"


def packages(place: Path) -> Path:
    (found,) = place.glob("lib/python3*/site-packages")
    return found


# What is done in the folder that has the virtualenv `opt/llmhost` and another user's `home`, and what is said.
PYTHONS = {
    "a folder above it is another's": ("chown nobody opt", "opt belongs to nobody"),
    "a group may write to its folder": (
        "chgrp 65534 opt/llmhost/bin; chmod 775 opt/llmhost/bin",
        "bin is writable by group nogroup",
    ),
    "a link to it leads through another's folder": (
        "cd opt/llmhost/bin; ln -s $(readlink python3) ../../../home/python3; ln -sf ../../../home/python3 python3",
        "home belongs to nobody",
    ),
    "its pyvenv.cfg is another's": ("chown nobody opt/llmhost/pyvenv.cfg", "pyvenv.cfg belongs to nobody"),
    "its packages are another's": ("chown nobody opt/llmhost/lib/python3*/site-packages", "packages belongs to nobody"),
    "a module is another's": (
        "chown nobody opt/llmhost/lib/python3*/site-packages/llmhost/__init__.py",
        "llmhost/__init__.py belongs to nobody",
    ),
    "a compiled module may be another's": (
        "cd opt/llmhost/lib/python3*/site-packages/llmhost; mkdir -m 777 __pycache__",
        "__pycache__ is writable by everybody",
    ),
    "a .pth file leads to a home": (
        'cd opt/llmhost/lib/python3*/site-packages; echo "$OLDPWD/home" >editable.pth',
        "home belongs to nobody",
    ),
    "the package is a link to a home": (
        "home=$PWD/home; cd opt/llmhost/lib/python3*/site-packages; mv llmhost $home; ln -s $home/llmhost llmhost",
        "home belongs to nobody",
    ),
}


@pytest.mark.parametrize("case", PYTHONS)
def test_a_python_that_runs_what_another_user_may_change_is_found(home: Path, case: str) -> None:
    place = home.parent / "opt/llmhost"
    place.parent.mkdir()
    python = venv(place)
    if python_exposures_of(python):
        missing("a Python that is root's alone")
    script, why = PYTHONS[case]
    sh(home.parent, script)
    assert why in python_exposures_of(python)


def python_exposures_of(python: Path) -> str:
    return "; ".join(python_exposures(str(python)))


def test_what_is_asked_of_a_python_runs_nothing_of_another_users_as_root() -> None:
    """A .pth file is run at each start of Python."""
    needs_root()
    python = Path("/usr/bin/python3")
    reached = Path("/tmp/llmhost-test-reached")
    place = Path("/opt/llmhost-test-exposure")
    try:
        subprocess.run([python, "-m", "venv", "--without-pip", place], check=True)
        pth = written(packages(place) / "evil.pth", f"import os; open('{reached}-' + str(os.getuid()), 'w')\n")
        os.chown(pth, NOBODY, NOBODY)
        assert f"{pth} belongs to nobody" in python_exposures_of(place / "bin/python")
        assert [path.name for path in reached.parent.glob(f"{reached.name}-*")] == [f"{reached.name}-{NOBODY}"]
    finally:
        shutil.rmtree(place, ignore_errors=True)
        for path in reached.parent.glob(f"{reached.name}-*"):
            path.unlink()


def line(*command: str, prefix: str = "+", **given: object) -> str:
    settings = UnitSettings(
        exec_start_pre=(("/bin/true",), command),
        exec_start_pre_prefixes=("+", prefix),
        environment=(("LD_PRELOAD", "/tmp/llmhost-no-such.so"),),
        **given,  # type: ignore[arg-type] # of the types that the settings have
    )
    return "; ".join(guard_exposures(settings))


def test_only_guards_that_root_runs_are_looked_at() -> None:
    needs_root()
    python = ("/usr/bin/python3", "-I", "-m", "llmhost", "guard")
    for prefix, sandbox, found in (
        ("+", LLM, True),
        ("!", LLM, True),
        ("-+", LLM, True),
        ("", Sandbox(), True),
        ("", LLM, False),
        ("", Sandbox(dynamic_user=True), False),
    ):
        assert ("LD_PRELOAD" in line(*python, prefix=prefix, sandbox=sandbox)) is found
    assert "LD_PRELOAD" not in line("/usr/bin/other", sandbox=LLM)


def test_a_guard_behind_a_shell_is_looked_at_itself(tmp_path: Path) -> None:
    needs_root()
    tmp_path.chmod(0o755)
    program = tmp_path / "llmhost"
    program.write_text("#!/usr/bin/python3\n")
    os.chown(program, 65534, 65534)
    found = line("/bin/sh", "-c", f"{program} guard || exit 1", sandbox=LLM)
    assert f"{program}" in found
    assert "LD_PRELOAD" in found
    assert "LD_PRELOAD" in line("/bin/sh", "-c", "$HOME/llmhost guard", sandbox=LLM)


def test_a_python_without_isolation_goes_by_the_home_and_the_folder_of_the_service(home: Path) -> None:
    isolated = ("/bin/sh", "-c", "exec", "/usr/bin/python3", "-I", "-m", "llmhost", "guard")
    assert "-I" not in line(*isolated, sandbox=LLM, working_directory=str(home))
    script = written(home.parent / "llmhost", "#!/usr/bin/python3\n")
    for command in (("/usr/bin/python3", "-m", "llmhost", "guard"), (str(script), "guard")):
        found = line(*command, sandbox=LLM, working_directory=str(home))
        assert "/usr/bin/python3 runs without -I, so that it imports packages of nobody ($HOME/.local)" in found
        assert f"imports from the working directory: {home} belongs to nobody" in found
