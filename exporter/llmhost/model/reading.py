"""A reading is a value, or the reason why there is none. Absent beats zero (docs/architecture.md, rule 5)."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeAlias, TypeVar

T = TypeVar("T")
U = TypeVar("U")
A = TypeVar("A")
B = TypeVar("B")


class Cause(StrEnum):
    """The cause of a missing reading. The values are label values of `llmhost_collector_fault`: change none."""

    DISABLED = "disabled"  # switched off in the config
    STARTING = "starting"  # the source has not answered for the first time yet
    TIMEOUT = "timeout"  # no answer within the deadline
    NO_PERMISSION = "no_permission"
    UNKNOWN = "unknown"
    # NVML; the codes are nvml.h's nvmlReturn_t
    NO_LIBRARY = "no_library"  # libnvidia-ml.so.1 not found (12)
    NO_DRIVER = "no_driver"  # kernel module not loaded (9)
    DRIVER_MISMATCH = "driver_mismatch"  # library and loaded driver differ (18)
    NO_DEVICE = "no_device"  # no driver is installed, and there is no NVIDIA device: none is missed
    NO_GPU = "no_gpu"  # the driver answers and has no GPU
    LOST = "lost"  # GPU fell off the bus (15)
    RESET_REQUIRED = "reset_required"  # (16)
    NOT_SUPPORTED = "not_supported"  # (3)
    RELEASED = "released"  # the driver is paused, by the command `llmhost release`
    CHANGING = "changing"  # memory or processes moved since the process lists were read, less than a second ago
    # D-Bus and systemd
    NO_BUS = "no_bus"  # no system bus to connect to
    NO_SYSTEMD = "no_systemd"  # a bus, but org.freedesktop.systemd1 has no owner
    BUS_ERROR = "bus_error"  # the bus or systemd answered with an error
    # engines
    REFUSED = "refused"  # nothing listens there
    HTTP_STATUS = "http_status"  # an answer other than 200 that none of the following names: the server is not well
    UNAUTHORIZED = "unauthorized"  # 401 or 403
    NOT_FOUND = "not_found"  # 404, 501, another 4xx: metrics are not switched on, or are elsewhere
    NO_METRICS = "no_metrics"  # 200, and none of the engine's metrics
    TOO_LARGE = "too_large"
    MALFORMED = "malformed"
    TLS = "tls"  # no TLS, or not with a certificate that we trust
    NETWORK_NAMESPACE = "network_namespace"  # its service has a network of its own
    # shared memory
    NO_SHM = "no_shm"  # no tmpfs at --path.shm, or not the host's
    # procfs
    NO_PROCFS = "no_procfs"  # nothing readable at --path.procfs
    PID_NAMESPACE = "pid_namespace"  # our pids are not the host's: attribution would be a guess
    CGROUP_NAMESPACE = "cgroup_namespace"  # cgroups are seen from our own: the units of processes are cut off

    @property
    def words(self) -> str:
        """The cause as people read it: `no driver`."""
        return self.value.replace("_", " ")


@dataclass(frozen=True, slots=True)
class Ok(Generic[T]):
    value: T


@dataclass(frozen=True, slots=True)
class StuckCall:
    """A call that has not come back: its name, what it is about ("" for nothing in particular), and for how long."""

    call: str
    subject: str
    seconds: float


@dataclass(frozen=True, slots=True)
class Failed:
    """It should be there and could not be read."""

    cause: Cause
    detail: str = ""
    stuck: StuckCall | None = None

    @property
    def words(self) -> str:
        """The cause in words, with its detail: `no driver (module not loaded)`."""
        return f"{self.cause.words} ({self.detail})" if self.detail else self.cause.words


@dataclass(frozen=True, slots=True)
class NotApplicable:
    """It cannot be there: the device has no such thing, or it was not collected."""

    why: str = ""


Reading: TypeAlias = Ok[T] | Failed | NotApplicable


def value_or_none(reading: Reading[T]) -> T | None:
    return reading.value if isinstance(reading, Ok) else None


def mapped(reading: Reading[T], function: Callable[[T], U]) -> Reading[U]:
    return Ok(function(reading.value)) if isinstance(reading, Ok) else reading


def both(first: Reading[A], second: Reading[B]) -> Reading[tuple[A, B]]:
    """Two readings as one: the first that is missing decides."""
    if not isinstance(first, Ok):
        return first
    if not isinstance(second, Ok):
        return second
    return Ok((first.value, second.value))
