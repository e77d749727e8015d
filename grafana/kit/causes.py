"""Causes of failed readings as numbers, so that a state timeline can show them."""

from collections.abc import Mapping, Sequence

from grafana.kit.panels import value_mappings
from grafana.kit.queries import BAD, CALM, GOOD, ODD, STARTING, WAITING, WORSE

# Cause in the `cause` label → colour. Its code is 10 plus its position; a failure without one of these is 0.
CAUSES: Mapping[str, str] = {
    "disabled": CALM,
    "released": CALM,
    "starting": STARTING,
    "changing": WAITING,
    "timeout": BAD,
    "no_permission": ODD,
    "unknown": BAD,
    # GPUs and the driver
    "lost": WORSE,
    "reset_required": WORSE,
    "not_supported": CALM,
    "no_device": CALM,
    "no_library": BAD,
    "no_driver": BAD,
    "driver_mismatch": BAD,
    "no_gpu": BAD,
    # systemd
    "no_bus": BAD,
    "no_systemd": BAD,
    "bus_error": BAD,
    # engines
    "refused": BAD,
    "http_status": ODD,
    "unauthorized": ODD,
    "not_found": ODD,
    "no_metrics": ODD,
    "too_large": ODD,
    "malformed": ODD,
    "tls": ODD,
    "network_namespace": ODD,
    # the host
    "no_shm": BAD,
    "no_procfs": BAD,
    "pid_namespace": BAD,
    "cgroup_namespace": BAD,
}
_CODES = {cause: 10 + place for place, cause in enumerate(CAUSES)}

OF_GPUS = ("lost", "reset_required", "timeout", "no_permission", "not_supported", "unknown")
OF_ENGINES = (
    "starting",
    "timeout",
    "refused",
    "http_status",
    "unauthorized",
    "not_found",
    "no_metrics",
    "too_large",
    "malformed",
    "tls",
    "network_namespace",
)
OF_COLLECTORS = (
    "disabled",
    "released",
    "starting",
    "timeout",
    "no_permission",
    "no_device",
    "no_library",
    "no_driver",
    "driver_mismatch",
    "no_gpu",
    "no_bus",
    "no_systemd",
    "bus_error",
    "no_shm",
    "no_procfs",
    "pid_namespace",
    "cgroup_namespace",
)


def ok_or_cause(ok: str, fault: str, matchers: str, by: str, causes: Sequence[str]) -> str:
    """Query: 1 where the reading is ok, the code of a listed cause, 0 for any other failure."""
    return f"{cause_code(fault, matchers, by, causes)} or min by ({by}) ({ok}{{{matchers}}})"


def cause_code(fault: str, matchers: str, by: str, causes: Sequence[str]) -> str:
    """Query: the code of a listed cause, where there is one."""
    codes = " or ".join(f'{_CODES[cause]} * {fault}{{cause="{cause}", {matchers}}}' for cause in causes)
    return f"max by ({by}) ({codes})"


OK_OR_CAUSE = value_mappings(
    {
        1: ("ok", GOOD),
        0: ("fails", BAD),
        **{float(_CODES[cause]): (cause.replace("_", " "), colour) for cause, colour in CAUSES.items()},
    }
)
