"""The one table of keys covers the schema, and what is written is what is read."""

import random
from dataclasses import fields, is_dataclass
from operator import attrgetter
from pathlib import Path, PurePosixPath

import yaml

from llmhost.config.keys import KEYS
from llmhost.config.load import dump, load, parse
from llmhost.config.schema import (
    CollectorsConfig,
    Config,
    EngineConfig,
    GpusConfig,
    PidNamespace,
    Policy,
    ProcessTitles,
    SegmentNames,
    SeriesConfig,
    ShmConfig,
    UnitGpus,
    UnitsConfig,
    WebConfig,
)
from llmhost.model.process import Role
from llmhost.model.segment import SegmentKind

EXAMPLE = Path(__file__).parents[2] / "systemd" / "llmhost.yml.example"


def attributes(value: object, prefix: str = "") -> list[str]:
    found: list[str] = []
    assert is_dataclass(value)
    for field in fields(value):
        inner = getattr(value, field.name)
        path = f"{prefix}{field.name}"
        found += attributes(inner, f"{path}.") if is_dataclass(inner) else [path]
    return found


def any_config(draw: random.Random) -> Config:
    def flag() -> bool:
        return draw.random() < 0.5

    def seconds(lowest: float, highest: float) -> float:
        return draw.choice([float(draw.randint(int(lowest) + 1, int(highest))), draw.uniform(lowest, highest)])

    names = ["vllm", r"dev-\x2d1", "on", "1", "llm-3.1"]
    patterns = draw.sample([*names, "a-*", "[!ab]?", "x@*"], k=4)
    gpus = ["0", "7", "1:3", "12:59", "GPU-0a-1b", "MIG-GPU-0a/1/2", "07:00.0", "00000000:8A:00.0"]
    globs = ["acme_*", "[!ab]?x", "null", "*", "0x10", "a: b", "#", "é"]
    urls = ["http://127.0.0.1:8000", "https://[::1]/v1/metrics?model=m", "http://llm.example", "http://h:1/a%20b"]
    return Config(
        units=UnitsConfig(
            patterns=tuple(f"{pattern}.service" for pattern in draw.sample(patterns, k=draw.randrange(3))),
            discover=flag(),
            gpus=tuple(
                UnitGpus(pattern=f"{pattern}.service", gpus=tuple(draw.sample(gpus, k=draw.randint(1, 5))))
                for pattern in patterns[: draw.randrange(4)]
            ),
        ),
        gpus=GpusConfig(expected=draw.choice([None, 0, 8, 1024])),
        policy=Policy(
            resident_bytes=draw.choice([0, 1, draw.randrange(1 << 50), draw.randrange(1 << 10) << 30]),
            segment_grace_seconds=seconds(0.1, 86400),
            orphan_grace_seconds=seconds(0.1, 86400),
            utilization_ratio=draw.choice([1.0, 0.92, draw.random() or 1.0, 1e-7]),
            ready_seconds=seconds(1, 604800),
        ),
        pid_namespace=draw.choice(list(PidNamespace)),
        shm=ShmConfig(
            kinds=tuple(
                SegmentNames(pattern=glob, kind=draw.choice(list(SegmentKind)))
                for glob in draw.sample(globs, k=draw.randrange(4))
            )
        ),
        titles=tuple(
            ProcessTitles(pattern=glob, engine=draw.choice(["acme", "1", "on"]), role=draw.choice(list(Role)))
            for glob in draw.sample([*globs, "python3 -m acme/serve *"], k=draw.randrange(4))
        ),
        engines=tuple(
            EngineConfig(
                unit=f"{draw.choice(names)}.service",
                url=url,
                token_file=draw.choice([None, PurePosixPath("/etc/llmhost/a b.token")]),
            )
            for url in draw.sample(urls, k=draw.randrange(4))
        ),
        collectors=CollectorsConfig(nvml=flag(), systemd=flag(), procfs=flag(), shm=flag(), engine=flag()),
        web=WebConfig(
            listen=draw.choice([":10061", "[::1]:0", "127.0.0.1:1", "localhost:65535", "[::]:9100", "a-b.example:80"]),
            deadline_seconds=seconds(0.1, 600),
            max_connections=draw.randint(1, 4096),
        ),
        series=SeriesConfig(max_per_family=draw.randint(1, 1_000_000)),
    )


def paths_of(written: dict[str, dict[str, object] | list[object]]) -> set[str]:
    return {
        path
        for section, content in written.items()
        for path in ([f"{section}.{name}" for name in content] if isinstance(content, dict) else [section])
    }


def test_every_field_of_the_config_has_exactly_one_key() -> None:
    assert sorted(key.attribute for key in KEYS) == sorted(attributes(Config()))
    assert len({key.path for key in KEYS}) == len(KEYS)


def test_what_is_written_is_read_back_to_the_same() -> None:
    draw = random.Random(3)
    for _ in range(60):
        config = any_config(draw)
        assert parse(dump(config), name="dumped") == config


def test_the_defaults_are_written_with_every_key_and_their_units() -> None:
    written = dump(Config())
    assert written.startswith("units:\n  patterns:\n  - vllm*.service\n  - sglang*.service\n  discover: true\n")
    for line in ("  expected: null", "  resident: 1000MiB", "  ready: 30m", "engines: []", "  listen: :10061"):
        assert f"\n{line}\n" in written
    assert paths_of(yaml.safe_load(written)) == {key.path for key in KEYS}


def test_the_example_file_has_every_key_at_its_default() -> None:
    assert load(EXAMPLE) == Config()
    written = yaml.safe_load(EXAMPLE.read_text())
    assert paths_of(written) == {key.path for key in KEYS}


def test_each_key_changes_its_own_field_and_no_other() -> None:
    changed = {
        "units.patterns": "[a]",
        "units.discover": "false",
        "units.gpus": "{a: [0]}",
        "gpus.expected": "3",
        "policy.resident": "1B",
        "policy.segment_grace": "1s",
        "policy.orphan_grace": "1s",
        "policy.utilization": "0.5",
        "policy.ready": "1s",
        "host.pid_namespace": "trust",
        "collectors.nvml": "false",
        "collectors.systemd": "false",
        "shm.kinds": "[{pattern: x, kind: nccl}]",
        "processes.titles": "[{pattern: x, engine: x, role: core}]",
        "engines": "[{unit: x, url: 'http://x'}]",
        "collectors.procfs": "false",
        "collectors.shm": "false",
        "collectors.engine": "false",
        "web.listen": "':1'",
        "web.deadline": "1s",
        "web.max_connections": "1",
        "series.max_per_family": "1",
    }
    assert changed.keys() == {key.path for key in KEYS}
    for key in KEYS:
        value = changed[key.path]
        config = parse(f"{key.section}: {{{key.name}: {value}}}" if key.name else f"{key.section}: {value}", name="x")
        differing = [a for a in attributes(config) if attrgetter(a)(config) != attrgetter(a)(Config())]
        assert differing == [key.attribute]
