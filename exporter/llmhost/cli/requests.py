"""The options of each command, the guard's aside (guard/request.py)."""

from dataclasses import dataclass, field
from pathlib import Path

from llmhost.config.paths import Paths
from llmhost.model.ids import UnitId


@dataclass(frozen=True, slots=True, kw_only=True)
class HostRequest:
    """The options of all commands that read the host."""

    config: Path | None = None  # None: the default one, if it is there
    state_directory: Path | None = None  # None: $STATE_DIRECTORY, else the default one, if it is there
    paths: Paths = field(default_factory=Paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeRequest(HostRequest):
    listen: str | None = None  # None: as the config has it
    once: bool = False
    log_level: str = "info"


@dataclass(frozen=True, slots=True, kw_only=True)
class StatusRequest(HostRequest):
    units: tuple[UnitId, ...] = ()  # none: the whole host
    json: bool = False
    watch: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DoctorRequest(HostRequest):
    units: tuple[UnitId, ...] = ()  # none: all that are watched
    json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class CleanRequest(HostRequest):
    apply: bool = False
    units: tuple[UnitId, ...] = ()  # none: all
    kinds: tuple[str, ...] = ()  # as given; none: all
    older_than_seconds: float = 0.0
    all_users: bool = False
    json: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverPauseRequest:
    seconds: float | None = 300.0  # None: end the pause that is in force
    paths: Paths = field(default_factory=Paths)


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckConfigRequest:
    file: Path | None = None  # None: the default one


@dataclass(frozen=True, slots=True, kw_only=True)
class InstallRequest:
    """Write, or remove, the drop-in that puts the guard before a unit; or list the units that have it."""

    unit: str  # as given
    remove: bool = False
    as_user: bool = False  # the guard is the service's user, in its sandbox
    list_all: bool = False
