"""The settings of one unit, asked of systemd at once: it need not run, be watched, or be loaded."""

import json
import subprocess

from llmhost.model.unit import UnitSettings
from llmhost.sources.systemd.names import unit_path
from llmhost.sources.systemd.properties.settings import parse_settings
from llmhost.sources.systemd.properties.typed_properties import TypedProperties

_SYSTEMD = "org.freedesktop.systemd1"
_SECONDS = 60.0


def read_unit_settings(unit: str) -> UnitSettings:
    """Ask by busctl, which loads the unit. Raises OSError, ValueError or subprocess.SubprocessError."""
    call = ["busctl", "--json=short", "call", _SYSTEMD, unit_path(unit), "org.freedesktop.DBus.Properties", "GetAll"]
    done = subprocess.run([*call, "s", ""], capture_output=True, check=True, timeout=_SECONDS)
    properties = json.loads(done.stdout)["data"][0]
    return parse_settings(TypedProperties({name: value["data"] for name, value in properties.items()}))
