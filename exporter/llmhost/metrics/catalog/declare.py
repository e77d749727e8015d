"""The declaration of a metric, and one constructor for each set of labels that families share."""

from dataclasses import dataclass
from enum import StrEnum


class MetricKind(StrEnum):
    GAUGE = "gauge"
    COUNTER = "counter"


class Mode(StrEnum):
    ALL = "all"
    SPARSE = "sparse"
    CURRENT = "current"


class Section(StrEnum):
    GPUS = "GPUs"
    UNITS = "Units"
    STARTS = "History of units"
    SHM = "Shared memory and helper processes"
    ENGINES = "Engines"
    GUARD = "Guard"
    EXPORTER = "The exporter itself"


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    name: str
    kind: MetricKind
    section: Section
    labels: tuple[str, ...]
    help: str
    mode: Mode | None = None  # of the last label, where it is an enum


def family(
    section: Section, name: str, help_: str, *labels: str, kind: MetricKind = MetricKind.GAUGE, mode: Mode | None = None
) -> Family:
    return Family(name=f"llmhost_{name}", kind=kind, section=section, labels=labels, help=help_, mode=mode)


def of_gpu(
    name: str, help_: str, *labels: str, kind: MetricKind = MetricKind.GAUGE, mode: Mode | None = None
) -> Family:
    return family(Section.GPUS, f"gpu_{name}", help_, "gpu", "uuid", *labels, kind=kind, mode=mode)


def of_unit(name: str, help_: str, *labels: str, mode: Mode | None = None) -> Family:
    return family(Section.UNITS, f"unit_{name}", help_, "unit", "manager", *labels, mode=mode)


def of_past(
    name: str, help_: str, *labels: str, kind: MetricKind = MetricKind.GAUGE, mode: Mode | None = None
) -> Family:
    """Declare a metric of a unit's history."""
    return family(Section.STARTS, f"unit_{name}", help_, "unit", "manager", *labels, kind=kind, mode=mode)


def of_shm(name: str, help_: str, *labels: str, mode: Mode | None = None) -> Family:
    return family(Section.SHM, name, help_, *labels, mode=mode)


def of_engine(
    name: str, help_: str, *labels: str, kind: MetricKind = MetricKind.GAUGE, mode: Mode | None = None
) -> Family:
    server = ("unit", "manager", "engine", "endpoint")
    return family(Section.ENGINES, f"engine_{name}", help_, *server, *labels, kind=kind, mode=mode)


def of_model(
    name: str, help_: str, *labels: str, kind: MetricKind = MetricKind.GAUGE, mode: Mode | None = None
) -> Family:
    """Declare a metric of an engine's model and core."""
    return of_engine(name, help_, "model", "engine_index", *labels, kind=kind, mode=mode)


def of_guard(
    name: str, help_: str, *labels: str, kind: MetricKind = MetricKind.GAUGE, mode: Mode | None = None
) -> Family:
    """Declare a metric of a guard's record."""
    return family(Section.GUARD, f"guard_{name}", help_, "unit", "manager", *labels, kind=kind, mode=mode)


def of_exporter(
    name: str, help_: str, *labels: str, kind: MetricKind = MetricKind.GAUGE, mode: Mode | None = None
) -> Family:
    return family(Section.EXPORTER, name, help_, *labels, kind=kind, mode=mode)
