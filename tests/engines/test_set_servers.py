"""The servers to ask follow from the last observation that came back."""

from pathlib import Path
from typing import Any

import pytest
from tests.fakes.values import in_service, process, table, unit

from llmhost.assemble import exporter as assemble
from llmhost.assemble.exporter import Exporter
from llmhost.collect.clock import SystemClock
from llmhost.collect.observer import Observer
from llmhost.config.load import parse
from llmhost.config.paths import Paths
from llmhost.model.engine import EngineServer
from llmhost.model.process import Role
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.unit import UnitsReport
from llmhost.sources.engine import source
from llmhost.sources.engine.source import EngineSource


def test_the_servers_to_ask_stay_when_an_observation_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    named: list[tuple[EngineServer, ...]] = []
    given: dict[str, Any] = {}

    class Source(EngineSource):
        def set_servers(self, servers: tuple[EngineServer, ...]) -> None:
            named.append(servers)

    class Recorded(Observer):
        def __init__(self, **parts: Any) -> None:  # noqa: ANN401 - of every kind
            given.update(parts)
            super().__init__(**parts)

    monkeypatch.setattr(source, "EngineSource", Source)
    monkeypatch.setattr(assemble, "Observer", Recorded)
    config = parse("collectors: {nvml: false, systemd: false, shm: false}", name="a")
    exporter = Exporter(config, Paths(procfs=Path("/proc")), clock=SystemClock())
    try:
        server = process(10, in_service("vllm.service"), 5000, engine="vllm", role=Role.API_SERVER, argv=("vllm",))
        processes = Ok(table([server]))
        units = Ok(UnitsReport(systemd_version="252", units=(unit("vllm.service", main_pid=10),)))
        failed = Failed(Cause.TIMEOUT)
        for readings in ((processes, units), (failed, units), (processes, failed), (failed, failed)):
            given["set_targets"](*readings)
        assert [[target.unit.name for target in servers] for servers in named] == [["vllm.service"]]
        given["set_targets"](Ok(table([])), units)
        assert named[1:] == [()]
    finally:
        exporter.close()
