"""Real servers for the engine source: processes of their own, run as `python …/vllm serve …` (engine_program.py)."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from llmhost.model.engine import EngineAnswer, EngineServer
from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.reading import Cause, Failed
from llmhost.sources.engine.source import EngineSource
from llmhost.sources.procfs_files import parse_stat

PROGRAM = Path(__file__).with_name("engine_program.py")
BODY = b'vllm:generation_tokens_total{engine="0",model_name="m"} 5.0\n'
PROC = Path("/proc")
WAIT_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Running:
    process: "subprocess.Popen[bytes]"
    ports: tuple[Any, ...]
    children: tuple[int, ...]
    visits: Path
    argv: tuple[str, ...]

    @property
    def pid(self) -> int:
        return self.process.pid

    def server(self, unit: str = "vllm.service", **given: Any) -> EngineServer:  # noqa: ANN401 - whatever a test cares for
        values: dict[str, Any] = {"engine": "vllm", "processes": (process_id(self.pid),), "argv": self.argv}
        return EngineServer(unit=UnitId(unit), **(values | given))

    def visited(self) -> list[int]:
        """Numbers of the listeners that had a connection."""
        return [int(number) for number in self.visits.read_text()]

    def end(self) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


class Engines:
    """Servers in a directory, and a source that asks them."""

    def __init__(self, directory: Path) -> None:
        self.source = EngineSource(procfs=PROC, timeout_seconds=5.0, max_bytes=1 << 20)
        self._directory = directory
        self._running: list[Running] = []
        (directory / "vllm").write_bytes(PROGRAM.read_bytes())

    def run(
        self,
        *modes: str | Mapping[str, Any],
        arguments: str = "--port PORT",
        body: bytes = BODY,
        environment: Mapping[str, str] | None = None,
        prefix: tuple[str, ...] = (),
    ) -> Running:
        """Start a server: a mode for a listener on a free port of 127.0.0.1, or a mapping that says more.

        PORT in the arguments is nobody's: a server cannot know its free port before it has it. So what the arguments
        say is wrong unless a test has `port` in a listener and in the arguments.
        """
        listeners = [
            {"at": "127.0.0.1", "in": "self", **({"mode": mode} if isinstance(mode, str) else mode)} for mode in modes
        ]
        number = len(self._running)
        visits, page = self._directory / f"visits-{number}", self._directory / f"body-{number}"
        visits.touch()
        page.write_bytes(body)
        argv = (sys.executable, str(self._directory / "vllm"), "serve", "m", *arguments.replace("PORT", "1").split())
        process = subprocess.Popen(
            [*prefix, *argv],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "ENGINE_LISTENERS": json.dumps(listeners),
                "ENGINE_VISITS": str(visits),
                "ENGINE_BODY": str(page),
                **(environment or {}),
            },
        )
        assert process.stdout is not None
        ready = process.stdout.readline()
        process.stdout.close()
        assert ready, "it did not start"
        started = json.loads(ready)
        running = Running(
            process=process,
            ports=tuple(started["ports"]),
            children=tuple(started["children"]),
            visits=visits,
            argv=argv,
        )
        self._running.append(running)
        return running

    def ask(self, *servers: EngineServer, within: float = WAIT_SECONDS) -> tuple[EngineAnswer, ...]:
        return ask(self.source, *servers, within=within)

    def answer_of(self, server: EngineServer, within: float = WAIT_SECONDS) -> EngineAnswer:
        return answer_of(self.source, server, within=within)

    def end(self) -> None:
        for running in self._running:
            running.end()
        self.source.close()


@pytest.fixture
def engines(tmp_path: Path) -> Iterator[Engines]:
    made = Engines(tmp_path)
    try:
        yield made
    finally:
        made.end()


def process_id(pid: int) -> ProcessId:
    return ProcessId(pid, parse_stat((PROC / str(pid) / "stat").read_bytes()).start_ticks)


def ask(source: EngineSource, *servers: EngineServer, within: float = WAIT_SECONDS) -> tuple[EngineAnswer, ...]:
    source.set_servers(servers)
    return source.read(time.monotonic() + within).answers


def answer_of(source: EngineSource, server: EngineServer, within: float = WAIT_SECONDS) -> EngineAnswer:
    (answer,) = ask(source, server, within=within)
    return answer


def failure(answer: EngineAnswer) -> Failed:
    assert isinstance(answer.samples, Failed), answer
    return answer.samples


def cause(answer: EngineAnswer) -> Cause:
    return failure(answer).cause


def until(true: Callable[[], bool]) -> None:
    """Wait for something that nothing announces."""
    deadline = time.monotonic() + WAIT_SECONDS
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.005)
