"""Why something cannot be read, as one number over time: for what the exporter has an `up` and a `fault` of."""

from collections.abc import Mapping, Sequence

from grafana.kit.panels import values
from grafana.kit.queries import BAD, CALM, GOOD, ODD, STARTING, WAITING, WORSE

# Cause, as the exporter spells it → colour. Its code is its place, from 10 on. What others are not told apart by is 0.
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
    "no_library": BAD,
    "no_driver": BAD,
    "driver_mismatch": BAD,
    "no_gpu": BAD,
    # systemd
    "no_bus": BAD,
    "no_systemd": BAD,
    "bus_error": BAD,
    # engines: nobody answers, or not what we can read
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
)


def ok_or_why(ok: str, fault: str, matchers: str, by: str, causes: Sequence[str]) -> str:
    """1 where it can be read, a cause's code where one of these is told, 0 where another is, or none."""
    return f"{why_not(fault, matchers, by, causes)} or min by ({by}) ({ok}{{{matchers}}})"


def why_not(fault: str, matchers: str, by: str, causes: Sequence[str]) -> str:
    """Give a cause's code where one of these is told."""
    told = " or ".join(f'{_CODES[cause]} * {fault}{{cause="{cause}", {matchers}}}' for cause in causes)
    return f"max by ({by}) ({told})"


OK_OR_WHY = values(
    {
        1: ("ok", GOOD),
        0: ("fails", BAD),
        **{float(_CODES[cause]): (cause.replace("_", " "), colour) for cause, colour in CAUSES.items()},
    }
)
