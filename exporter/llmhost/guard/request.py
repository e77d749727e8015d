"""The options of `llmhost guard`."""

from dataclasses import dataclass
from pathlib import Path

from llmhost.config.paths import Paths


@dataclass(frozen=True, slots=True, kw_only=True)
class GuardRequest:
    """One run of the guard: wait until the GPUs of a unit have free what it needs."""

    unit: str | None = None  # as given; None: the service that this runs in
    gpus: tuple[str, ...] = ()  # indexes, UUIDs or PCI bus ids; none: the unit's own
    need_free_bytes: int | None = None  # of these two at most one
    need_free_ratio: float | None = None
    max_used_bytes: int = 1000 << 20
    need_shm_bytes: int | None = None
    settle_seconds: float = 1.0
    timeout_seconds: float = 150.0
    admit_on_unknown: bool = False
    refuse_on_fault: bool = False
    reap: bool = False
    clean_shm: bool = False
    config: Path | None = None  # None: the default one, if it is there
    state_directory: Path | None = None  # as for the config
    run_directory: Path = Paths().run
    command: tuple[str, ...] = ()
    environment: tuple[tuple[str, str], ...] = ()  # what this was started with (guard/environment.py)
