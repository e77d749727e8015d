"""Processes that have the driver open, or are llmhost's own."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverUser:
    pid: int
    comm: str
    state: str  # as in /proc/PID/stat: D is a call that cannot be interrupted
    ppid: int
    nvml_child: bool  # of an llmhost, whether or not it has the driver open
    command: str  # of llmhost, such as "serve"; "" of all others
    has_open: bool | None  # None: its open files may not be read


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverUsers:
    """Those that are llmhost's, or have the driver open, by pid."""

    users: tuple[DriverUser, ...]
    unseen: int  # other processes whose open files may not be read
    hidden: bool  # there may be processes that /proc does not show
