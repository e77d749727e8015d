"""The settings of one unit, asked of systemd directly: the unit need not run, be watched or be loaded."""

import json
import subprocess
from typing import Any

from llmhost.model.unit import UnitSettings
from llmhost.sources.systemd.calls import MANAGER, MANAGER_PATH, SYSTEMD
from llmhost.sources.systemd.names import unit_path
from llmhost.sources.systemd.properties.settings import parse_settings
from llmhost.sources.systemd.properties.typed_properties import TypedProperties

_SECONDS = 60.0


def read_unit_settings(unit: str) -> UnitSettings:
    """Ask by busctl, which loads the unit. Raises OSError, ValueError, LookupError or subprocess.SubprocessError."""
    properties = _busctl("call", unit_path(unit), "org.freedesktop.DBus.Properties", "GetAll", "s", "")[0]
    return parse_settings(TypedProperties({name: value["data"] for name, value in properties.items()}))


def read_manager_environment() -> tuple[tuple[str, str], ...]:
    """Ask for the variables that systemd gives to each unit. Raises as above."""
    found = _busctl("get-property", MANAGER_PATH, MANAGER, "Environment")
    return tuple((name, value) for name, _, value in (entry.partition("=") for entry in found))


def _busctl(command: str, *arguments: str) -> list[Any]:
    asked = ["busctl", "--json=short", command, SYSTEMD, *arguments]
    done = subprocess.run(asked, capture_output=True, check=True, timeout=_SECONDS)
    data: list[Any] = json.loads(done.stdout)["data"]
    return data
