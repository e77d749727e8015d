"""The one table of keys covers the schema, and what is written is what is read."""

from dataclasses import fields, is_dataclass
from operator import attrgetter
from pathlib import Path, PurePosixPath

import yaml

from llmhost.config.keys import KEYS
from llmhost.config.load import dump, load, parse
from llmhost.config.schema import (
    Config,
    EngineConfig,
    Policy,
    ProcessTitles,
    UnitGpus,
    UnitsConfig,
)
from llmhost.model.process import Role

EXAMPLE = Path(__file__).parents[2] / "systemd" / "llmhost.yml.example"


def attributes(value: object, prefix: str = "") -> list[str]:
    found: list[str] = []
    assert is_dataclass(value)
    for field in fields(value):
        inner = getattr(value, field.name)
        path = f"{prefix}{field.name}"
        found += attributes(inner, f"{path}.") if is_dataclass(inner) else [path]
    return found


def paths_of(written: dict[str, dict[str, object] | list[object]]) -> set[str]:
    return {
        path
        for section, content in written.items()
        for path in ([f"{section}.{name}" for name in content] if isinstance(content, dict) else [section])
    }


def test_every_field_of_the_config_has_exactly_one_key() -> None:
    assert sorted(key.attribute for key in KEYS) == sorted(attributes(Config()))
    assert len({key.path for key in KEYS}) == len(KEYS)


def test_what_yaml_would_take_for_something_else_is_read_back_to_the_same() -> None:
    globs = ("on", "1", "null", "~", "0x10", "1:30", "a: b", "#", "é", "*", "[!ab]?x", "python3 -m acme/serve *")
    config = Config(
        units=UnitsConfig(patterns=(), gpus=(UnitGpus(pattern=r"dev-\x2d1.service", gpus=("0", "1:3", "07:00.0")),)),
        policy=Policy(resident_bytes=(1 << 50) - 1, segment_grace_seconds=0.1234, utilization_ratio=1e-7),
        titles=tuple(ProcessTitles(pattern=glob, engine="on", role=Role.CORE) for glob in globs),
        engines=(EngineConfig(unit="1.service", url="http://h:1/a%20b", token_file=PurePosixPath("/etc/a b.token")),),
    )
    assert parse(dump(config), name="dumped") == config


def test_the_defaults_are_written_with_every_key_and_their_units() -> None:
    written = dump(Config())
    assert written.startswith("units:\n  patterns:\n  - vllm*.service\n  - sglang*.service\n  discover: true\n")
    lines = ("  expected: null", "  resident: 1000MiB", "  ready: 30m", "  utilization: 0.92", "engines: []")
    for line in (*lines, "  listen: :10061", "  max_connections: 64"):
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
        assert parse(dump(config), name="dumped") == config
