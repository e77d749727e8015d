"""Properties of a unit, read by type.

A property that is missing (an older systemd) or of another type (a later one, or a fault) is an absent value, never a
zero. One of another type is noted as well.
"""

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

Properties: TypeAlias = Mapping[str, Any]  # by name: str, int, bool, bytes, lists

INFINITY = 2**64 - 1  # USEC_INFINITY, and the value of limits that are off
_MICROSECONDS = 1_000_000
# systemd.service(5), "Special executable prefixes"; the flags are those of org.freedesktop.systemd1(5).
_PREFIXES = {
    "ignore-failure": "-",
    "privileged": "+",
    "no-setuid": "!",
    "ambient": "!!",
    "no-env-expand": ":",
}


class TypedProperties:
    """Properties, read by type; `wrong` has those of another type."""

    def __init__(self, properties: Properties) -> None:
        self._properties = properties
        self.wrong: list[str] = []

    def _of(self, name: str, kind: type) -> Any:  # noqa: ANN401
        value = self._properties.get(name)
        if value is None:
            return None
        if not isinstance(value, kind) or (kind is int and isinstance(value, bool)):
            self.wrong.append(f"{name}: {type(value).__name__} instead of {kind.__name__}")
            return None
        return value

    def text(self, name: str) -> str:
        value: str | None = self._of(name, str)
        return value or ""

    def number(self, name: str) -> int | None:
        value: int | None = self._of(name, int)
        return value

    def flag(self, name: str) -> bool | None:
        value: bool | None = self._of(name, bool)
        return value

    def pid(self, name: str) -> int:
        return self.number(name) or 0

    def job(self) -> int:
        """Read the number of the unit's job, of type (uo); 0 where it has none."""
        value = self._of("Job", list)
        if not value:
            return 0
        if not isinstance(value[0], int) or isinstance(value[0], bool):
            self.wrong.append("Job: not a number and a path")
            return 0
        return value[0]

    def invocation_id(self) -> str:
        value: bytes | None = self._of("InvocationID", bytes)
        return value.hex() if value else ""

    def span_seconds(self, name: str) -> float | None:
        """Read a time span; None where infinite. 0 stays 0: it is what was set."""
        value = self.number(name)
        return None if value is None or value == INFINITY else value / _MICROSECONDS

    def point_seconds(self, name: str) -> float | None:
        """Read a point in time; None where it has not come yet."""
        value = self.number(name)
        return None if value is None or value in (0, INFINITY) else value / _MICROSECONDS

    def commands(self, name: str) -> tuple[tuple[str, ...], ...]:
        """Argument vectors of an Exec*= list, of type a(sasbttttuii)."""
        commands = self._members(name, 1, list)
        if not all(isinstance(argument, str) for argv in commands for argument in argv):
            self.wrong.append(f"{name}: not a list of commands")
            return ()
        return tuple(map(tuple, commands))

    def command_starts(self, name: str) -> tuple[float | None, ...]:
        """Read the starts of an Exec*= list's processes, on CLOCK_MONOTONIC; None of one that systemd does not know."""
        return tuple(start / _MICROSECONDS if start else None for start in self._members(name, 4, int))

    def texts(self, name: str) -> tuple[str, ...]:
        values: list[Any] = self._of(name, list) or []
        if not all(isinstance(value, str) for value in values):
            self.wrong.append(f"{name}: not a list of str")
            return ()
        return tuple(values)

    def limit(self, name: str) -> int | None:
        """Read a limit; None where infinite."""
        value = self.number(name)
        return None if value == INFINITY else value

    def prefixes(self, name: str) -> tuple[str, ...]:
        """Read the prefix of each command of an Exec*Ex list (systemd 243), of type a(sasasttttuii)."""
        commands = self._members(name, 2, list)
        return tuple("".join(prefix for flag, prefix in _PREFIXES.items() if flag in flags) for flags in commands)

    def members(self, name: str, place: int = 0) -> tuple[str, ...]:
        """Read one member of each struct of a list, as of a(ss)."""
        return tuple(self._members(name, place, str))

    def _members(self, name: str, place: int, kind: type) -> list[Any]:
        members = []
        for struct in self._of(name, list) or ():
            if not isinstance(struct, list) or len(struct) <= place or not isinstance(struct[place], kind):
                self.wrong.append(f"{name}: not a list of structs with a {kind.__name__} each")
                return []
            members.append(struct[place])
        return members

    def allowed_texts(self, name: str) -> tuple[bool, tuple[str, ...]]:
        """Read a list of allowed (True) or denied names, of type (bas)."""
        value = self._of(name, list)
        match value:
            case [bool() as allowed, [*texts]] if all(isinstance(text, str) for text in texts):
                return allowed, tuple(texts)
            case None:
                pass
            case _:
                self.wrong.append(f"{name}: not a list of what is allowed")
        return False, ()

    def exit_statuses(self, name: str) -> tuple[tuple[int, ...], tuple[int, ...]]:
        """Read exit statuses and signals, of type (aiai)."""
        value = self._of(name, list)
        match value:
            case [[*statuses], [*signals]] if all(type(number) is int for number in (*statuses, *signals)):
                return tuple(statuses), tuple(signals)
            case None:
                pass
            case _:
                self.wrong.append(f"{name}: not a list of exit statuses and one of signals")
        return (), ()

    def environment(self) -> tuple[tuple[str, str], ...]:
        assignments = (assignment.partition("=") for assignment in self.texts("Environment"))
        return tuple((name, value) for name, _, value in assignments)


def names_read(parse: Callable[[TypedProperties], object]) -> frozenset[str]:
    """Names of the properties that a parser reads."""
    recorder = _Recorder({})
    parse(recorder)
    return frozenset(recorder.names)


class _Recorder(TypedProperties):
    """No properties; `names` has those that were asked for."""

    def __init__(self, properties: Properties) -> None:
        super().__init__(properties)
        self.names: set[str] = set()

    def _of(self, name: str, kind: type) -> Any:  # noqa: ANN401
        self.names.add(name)
        return super()._of(name, kind)
