"""llmhost as docs/install.md installs it, in a booted system: a virtualenv at /opt/llmhost that every user can read."""

import re
import sys
import sysconfig
from pathlib import Path

from tests.fakes.booted import Booted
from tests.fakes.needs import missing
from tests.fakes.other_users import DEPENDENCIES

PLACE = "/opt/llmhost"
PYTHON = f"{PLACE}/bin/python"
LLMHOST = (PYTHON, "-I", "-m", "llmhost")
GUARD_CONF = Path(__file__).parents[2] / "systemd/guard.conf"
_EXPORTER = Path(__file__).parents[2] / "exporter"


def install_llmhost(booted: Booted, place: str = PLACE) -> Path:
    """Give the folder of the package, as it is called inside."""
    found = booted.run(["/usr/bin/python3", "-c", "import sys; print(sys.version_info >= (3, 11))"], check=False)
    if found.stdout != "True\n":
        missing("a /usr/bin/python3 of 3.11 or newer, which other users can run")
    booted.run(["rm", "-rf", place])
    booted.run(["/usr/bin/python3", "-m", "venv", "--without-pip", place])
    (packages,) = booted.run(["sh", "-c", f"echo {place}/lib/python3*/site-packages"]).stdout.split()
    here = Path(sysconfig.get_paths()["purelib"])
    booted.run(["cp", "-r", str(_EXPORTER / "llmhost"), *(str(here / name) for name in DEPENDENCIES), packages])
    booted.run(["mkdir", f"{packages}/llmhost/_assets"])
    booted.run(["cp", "-r", str(GUARD_CONF.parent), f"{packages}/llmhost/_assets"])
    booted.run([f"{place}/bin/python", "-m", "compileall", "-q", packages])  # as pip does
    return Path(packages) / "llmhost"


def guard_argv(unit: str, python: str = sys.executable) -> list[str]:
    """Read the line of systemd/guard.conf as systemd does (systemd.service(5)), for a unit."""
    text = GUARD_CONF.read_text().replace("\\\n", " ")
    (line,) = re.findall(r"^ExecStartPre=\+(.*)$", text, re.MULTILINE)
    shell, flag, rest = line.split(" ", 2)
    script, _, command = rest[1:].rpartition("' ")
    unescaped = script.replace("$$", "$").replace("%n", unit)
    return [shell, flag, unescaped, python, *command.split()[1:]]
