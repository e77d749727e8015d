"""Reading units in tests: a source on some bus, and waiting for what must come true."""

import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from tests.fakes.bus import PrivateBus

from llmhost.model.unit import Unit, UnitsReport
from llmhost.sources.base import SourceError
from llmhost.sources.systemd.bus.connection import BusConnection
from llmhost.sources.systemd.session import BusSession
from llmhost.sources.systemd.source import SystemdSource
from llmhost.sources.systemd.units.units import Units

VLLM: dict[str, Any] = {"Id": "vllm.service", "MainPID": 100, "NRestarts": 1}
GLOBS = ("vllm.service", "vllm-*.service", "vllm@*.service")


@contextlib.contextmanager
def source_at(address: str, *patterns: str, **settings: Any) -> Iterator[SystemdSource]:  # noqa: ANN401
    settings = {"discover": False, "is_engine_command": lambda argv: "vllm" in argv, **settings}
    source = SystemdSource(patterns=patterns or GLOBS, address=address, **settings)
    try:
        yield source
    finally:
        source.close()
        assert source._thread is None or not source._thread.is_alive()


def source_on(
    on: PrivateBus,
    *patterns: str,
    **settings: Any,  # noqa: ANN401
) -> contextlib.AbstractContextManager[SystemdSource]:
    return source_at(on.address, *patterns, **settings)


def read(source: SystemdSource, seconds: float = 10.0) -> UnitsReport:
    return source.read(time.monotonic() + seconds)


def units(source: SystemdSource, seconds: float = 10.0) -> dict[str, Unit]:
    return {unit.id.name: unit for unit in read(source, seconds).units}


def fault(source: SystemdSource, seconds: float = 10.0) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read(source, seconds)
    return caught.value


def eventually(
    source: SystemdSource, condition: Callable[[dict[str, Unit]], bool], seconds: float = 120.0
) -> dict[str, Unit]:
    """Read until it holds; signals arrive when they arrive."""
    end = time.monotonic() + seconds
    while True:
        with contextlib.suppress(SourceError):
            found = units(source)
            if condition(found):
                return found
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.005)


def session_of(source: SystemdSource) -> BusSession:
    assert source._session is not None
    return source._session


def connection_of(source: SystemdSource) -> BusConnection:
    bus = session_of(source).bus
    assert bus is not None
    return bus


def bus_socket(source: SystemdSource) -> int:
    return connection_of(source)._writer.get_extra_info("socket").fileno()  # type: ignore[no-any-return]


def watched_by(source: SystemdSource) -> Units:
    units = source._units()
    assert units is not None
    return units


@pytest.fixture
def bus() -> Iterator[PrivateBus]:
    with PrivateBus() as private:
        yield private


def wait_until(condition: Callable[[], object], seconds: float = 120.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "it never came true"
        time.sleep(0.002)
