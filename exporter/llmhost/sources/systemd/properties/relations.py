"""Relations of a unit to others, and the states of those, from their properties. Pure."""

from dataclasses import dataclass

from llmhost.sources.systemd.properties.typed_properties import Properties, TypedProperties

# Those by which a stop of the other unit stops this one as well (systemd.unit(5)).
STOP_WITH = ("BindsTo", "Requires", "PartOf", "StopPropagatedFrom")
_PULL_IN = ("WantedBy", "RequiredBy", "BoundBy", "UpheldBy")
_START = ("TriggeredBy", "OnFailureOf", "OnSuccessOf")
RELATIONS = frozenset((*STOP_WITH, *_PULL_IN, *_START))
# What nearly all services require, and never ends while they run.
_FOR_ALL = frozenset({"-.mount", "basic.target", "sysinit.target"})


@dataclass(frozen=True, slots=True)
class Relation:
    kind: str  # the property's name
    name: str  # of the other unit


def relations_of(properties: Properties) -> tuple[Relation, ...]:
    """Read what relates a unit to others. systemd names them in no order."""
    typed = TypedProperties(properties)
    return tuple(
        Relation(kind, name)
        for kind in (*_PULL_IN, *_START, *STOP_WITH)
        for name in sorted(typed.texts(kind))
        if name not in _FOR_ALL and not name.endswith(".slice")
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class RelativeState:
    active_state: str
    sub_state: str
    job: int
    state_change_monotonic: float | None
    active_enter_monotonic: float | None
    inactive_enter_monotonic: float | None

    @property
    def is_up(self) -> bool:
        """It is up or comes up; not in auto-restart, though systemd calls that activating."""
        return self.active_state in _UP and "auto-restart" not in self.sub_state


_UP = frozenset({"active", "reloading", "refreshing", "activating"})
STATE = frozenset(
    {
        "ActiveState",
        "SubState",
        "Job",
        "StateChangeTimestampMonotonic",
        "ActiveEnterTimestampMonotonic",
        "InactiveEnterTimestampMonotonic",
    }
)


def relative_state(properties: Properties) -> RelativeState:
    typed = TypedProperties(properties)
    return RelativeState(
        active_state=typed.text("ActiveState"),
        sub_state=typed.text("SubState"),
        job=typed.job(),
        state_change_monotonic=typed.point_seconds("StateChangeTimestampMonotonic"),
        active_enter_monotonic=typed.point_seconds("ActiveEnterTimestampMonotonic"),
        inactive_enter_monotonic=typed.point_seconds("InactiveEnterTimestampMonotonic"),
    )
