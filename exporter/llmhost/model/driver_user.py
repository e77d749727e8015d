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
    has_open: bool | None  # None: it may not be looked at


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverUsers:
    """Those that are llmhost's, or have the driver open, by pid."""

    users: tuple[DriverUser, ...]
    unseen: int  # other processes that may not be looked at
    hidden: bool  # of some it cannot even be seen that they are there
