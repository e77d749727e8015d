"""Ways for others than root to change a guard's line that runs as root, each as a line of text.

"+" runs the line as root, with the service's environment (systemd.exec(5)). Whoever may change that environment, or
what the line runs, is root at the next start.
"""

import json
import os
import pwd
import shlex
import shutil
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from llmhost.derive.command import guard_in
from llmhost.guard.loader_variables import changeable_variables
from llmhost.model.command.words import is_known
from llmhost.model.unit import UnitSettings
from llmhost.runtime.trusted_path import emptied_folder, hops, is_closed, who_may_change, who_may_change_below

Variables = Iterable[tuple[str, str]]

# Stands for the instance of a template that is to come: it may be any.
ANY_INSTANCE = "llmhostAnyInstance"
_NOBODY = 65534
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"  # systemd's and the shells' own
_SECONDS = 30.0
_MOST_BYTES = 1 << 20
_WHERE_IT_IMPORTS_FROM = (
    "import sys, json, importlib.util as u; s = u.find_spec('llmhost');"
    "print(json.dumps([*sys.path, *(s.submodule_search_locations if s else ())]))"
)


def guard_exposures(settings: UnitSettings, manager: Variables = ()) -> Iterator[str]:
    """Look at the lines of a unit that run its guard as root; `manager` is the environment that each unit gets."""
    found = False
    for command, prefix in zip(settings.exec_start_pre, settings.exec_start_pre_prefixes, strict=False):
        line = guard_in(command)
        if line and ("+" in prefix or "!" in prefix or is_roots(settings)):
            found = True
            yield from command_exposures(line, settings)
    if found:
        yield from environment_exposures(settings, manager)


def is_roots(settings: UnitSettings) -> bool:
    return settings.sandbox.user in {"", "root", "0"} and not settings.sandbox.dynamic_user


def environment_exposures(settings: UnitSettings, manager: Variables = ()) -> Iterator[str]:
    """Look at the manager's variables, PassEnvironment= among them, Environment= and EnvironmentFile=."""
    if settings.sandbox.root and (why := who_may_change(settings.sandbox.root)):
        yield f"RootDirectory= or RootImage=, which hold in spite of +: {why}"
    folder = _working_directory(settings)
    for variable in changeable_variables(manager, folder):
        yield f"systemctl show-environment has {variable}"
    for variable in changeable_variables(settings.environment, folder):
        yield f"Environment={variable}"
    for path in settings.environment_files:
        yield from _file_exposures(path, folder, settings)


def command_exposures(command: Sequence[str], settings: UnitSettings) -> Iterator[str]:
    """Look at the program of a line, and where its Python imports from."""
    if not is_known(command[0]):
        return  # a variable of a file, which is looked at itself
    program = _program(command)
    python = _python(program)
    if program != python and (why := who_may_change(program)):
        yield f"{program}: {why}"
    yield from python_exposures(python)
    if "-I" in command:
        return
    if not is_roots(settings):
        yield f"{python} runs without -I, so that it imports packages of {_user(settings)} ($HOME/.local)"
    if why := who_may_change(_working_directory(settings)):
        yield f"{python} runs without -I, so that it imports from the working directory: {why}"
    for variable in changeable_variables(settings.environment, _working_directory(settings), isolated=False):
        if variable.startswith("PYTHON"):
            yield f"{python} runs without -I: {variable}"


def python_exposures(python: str) -> Iterator[str]:
    """Look at a Python, at each link to it, and at all that it imports from with -I."""
    if why := who_may_change(python):
        yield f"{python}: {why}"
        return
    for place in hops(python):
        for config in (place.parent / "pyvenv.cfg", place.parent.parent / "pyvenv.cfg"):
            if config.exists() and (why := who_may_change(config)):
                yield f"{config}: {why}"
                return
    for folder in _imports_from(python):
        if why := who_may_change_below(folder):
            yield f"{python} imports from {folder}: {why}"
            return


def _imports_from(python: str) -> list[str]:
    """Ask that Python, as nobody: root should not run what is not known to be root's.

    Behind a folder that only root may enter, others can change nothing.
    """
    drops = os.geteuid() == 0 and not is_closed(python) and not any(map(is_closed, hops(python)))
    try:
        done = subprocess.run(
            [python, "-I", "-c", _WHERE_IT_IMPORTS_FROM],
            cwd="/",
            env={},
            capture_output=True,
            check=True,
            timeout=_SECONDS,
            user=_NOBODY if drops else None,
            group=_NOBODY if drops else None,
            extra_groups=[] if drops else None,
        )
        found: list[str] = json.loads(done.stdout)
    except (OSError, ValueError, subprocess.SubprocessError):
        return [str(folder) for place in hops(python) for folder in place.parent.parent.glob("lib*/python3*")]
    return found


def _program(command: Sequence[str]) -> str:
    """Find the program of a line, behind the shell of ours."""
    behind_shell = command[3:] if tuple(command[:2]) == ("/bin/sh", "-c") else ()
    program = (*behind_shell, *command)[0]
    return program if "/" in program else shutil.which(program, path=_PATH) or program


def _python(program: str) -> str:
    """Find the Python of a program: itself, or that in the first line of a script."""
    if Path(program).name.startswith("python"):
        return program
    try:
        with Path(program).open("rb") as file:
            first = file.readline(4096).decode(errors="replace").split()
    except OSError:
        return program
    return first[0].removeprefix("#!") if first and first[0].startswith("#!/") else program


def _working_directory(settings: UnitSettings) -> str:
    """Give the folder that the line runs in; "~" is the home of User=."""
    given = settings.working_directory.lstrip("!-")
    if given != "~":
        return given or "/"
    try:
        return pwd.getpwnam(settings.sandbox.user or "root").pw_dir
    except KeyError:
        return given


def _file_exposures(path: str, folder: str, settings: UnitSettings) -> Iterator[str]:
    what = f"EnvironmentFile={path.replace(ANY_INSTANCE, '%i')}"
    for given in settings.own_directories:
        if (path == given or path.startswith(f"{given}/")) and not is_roots(settings):
            yield f"{what}: systemd gives {given} to {_user(settings)}"
            return
    pattern = path.replace(ANY_INSTANCE, "*")
    for place in (*_folders_of_matches(pattern), *_matches(pattern)):
        why = who_may_change(place)
        if not why and (emptied := emptied_folder(place)):
            why = f"everybody may make it anew when {emptied} has been emptied"
        if why:
            yield f"{what}: {why}"
            return
    for place in _matches(pattern):
        for variable in changeable_variables(_assignments(place), folder):
            yield f"{what} has {variable}"


def _folders_of_matches(pattern: str) -> Iterator[Path]:
    """Yield the folders in which a file may be made that matches a pattern."""
    parts = pattern.strip("/").split("/")
    first = next((place for place, part in enumerate(parts) if _is_glob(part)), len(parts))
    for length in range(first, len(parts)):
        yield from _matches("/".join(parts[:length]))


def _matches(pattern: str) -> list[Path]:
    """Give what matches glob(7); where it is no pattern, that alone, there or not."""
    return sorted(Path("/").glob(pattern.lstrip("/"))) if _is_glob(pattern) else [Path("/", pattern)]


def _is_glob(text: str) -> bool:
    return any(character in text for character in "*?[")


def _assignments(path: Path) -> Iterator[tuple[str, str]]:
    """Read the variables of an environment file (systemd.exec(5), EnvironmentFile=)."""
    try:
        if not path.is_file():
            return
        with path.open(encoding="utf-8", errors="surrogateescape") as file:
            text = file.read(_MOST_BYTES)
    except OSError:
        return
    for line in text.replace("\\\n", "").splitlines():
        name, sign, value = line.strip().partition("=")
        if sign and not name.startswith(("#", ";")):
            yield name.strip(), _unquoted(value.strip())


def _unquoted(value: str) -> str:
    try:
        return " ".join(shlex.split(value))
    except ValueError:
        return value


def _user(settings: UnitSettings) -> str:
    return settings.sandbox.user or "the service's user"
