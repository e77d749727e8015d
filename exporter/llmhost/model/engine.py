"""Inference engines: their servers, and the samples of their /metrics."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import PurePath

from llmhost.model.ids import ProcessId, UnitId
from llmhost.model.reading import Reading


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineServer:
    """A server to scrape, as known before its sockets are read.

    Configured ones have `url`, and their sockets are not read. The others have the processes whose listening sockets
    count (API servers and their launcher, never a worker) and the command line that started them. The first process and
    `run` distinguish a server from the one before it.
    """

    unit: UnitId
    engine: str  # "" when configured for a unit of which it is not known
    url: str = ""
    token_file: PurePath | None = None
    processes: tuple[ProcessId, ...] = ()
    argv: tuple[str, ...] = ()
    run: str = ""  # the unit's InvocationID
    starting: bool = False  # it may not listen yet, and that is no fault


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineSample:
    """The sample of one engine of a server; None where its /metrics have none. Counters as the engine counts them."""

    model: str  # "" where the engine does not say
    engine_index: str  # as the engine counts, "0" also of the only one; "" where it does not say
    generation_tokens: float | None = None
    prompt_tokens: float | None = None
    requests_running: float | None = None
    requests_waiting: float | None = None
    kv_cache_usage_ratio: float | None = None  # 0..1
    preemptions: float | None = None
    steps: float | None = None  # iterations of the engine loop
    sleeping: bool | None = None
    finished: Mapping[str, float] = field(default_factory=dict)  # reason → requests


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineAnswer:
    unit: UnitId
    engine: str
    endpoint: str  # scheme, host and port that were scraped, without path: "http://127.0.0.1:8000"; "unix:PATH"
    samples: Reading[tuple[EngineSample, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EnginesReport:
    answers: tuple[EngineAnswer, ...]  # by unit and endpoint; a server by design without endpoint has none
