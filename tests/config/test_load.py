"""A mistake is reported in one line: the file, the line, the key, and the fault."""

import random
from pathlib import Path, PurePosixPath

import pytest

from llmhost.config.load import LARGEST_FILE_BYTES, ConfigError, load, parse
from llmhost.config.schema import (
    CollectorsConfig,
    Config,
    EngineConfig,
    GpusConfig,
    PidNamespace,
    Policy,
    ProcessTitles,
    SegmentNames,
    UnitGpus,
    WebConfig,
)
from llmhost.model.process import Role
from llmhost.model.segment import SegmentKind

EXAMPLE = Path(__file__).parents[2] / "systemd" / "llmhost.yml.example"


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, name="f")
    message = str(caught.value)
    assert message.isprintable()  # which also means: one line
    return message


def complaint_about_file(path: Path) -> str:
    with pytest.raises(ConfigError) as caught:
        load(path)
    return str(caught.value)


def test_a_whole_file_is_read() -> None:
    config = parse(
        """\
units:
  patterns: [vllm, "*-llm.service", 'sglang@*', on]
  discover: off
  gpus:
    vllm: [0, 1:3, "GPU-0a1b"]
    sglang@*: [07:00.0, 00000000:8A:00.0]
gpus: {expected: 8}
policy: {resident: 1.5GiB, segment_grace: &grace 1m, orphan_grace: "500ms", utilization: 1, ready: 1h30m}
host: {pid_namespace: trust}
collectors: {nvml: False}
web: {listen: "[::1]:0", deadline: 9.5s, max_connections: 7}
shm:
  kinds:
    - {pattern: "acme_*", kind: torch}
    - kind: python_shm
      pattern: "[ab]?[!c]"
processes: {titles: [{pattern: "acme::Engine*", engine: acme, role: core}]}
engines:
  - {unit: vllm-b, url: "https://[::1]:8443/metrics?model=m", token_file: /etc/llmhost/b.token}
  - {unit: vllm-a.service, url: http://localhost:8000}
""",
        name="f",
    )
    assert config.units.patterns == ("vllm.service", "*-llm.service", "sglang@*.service", "on.service")
    assert config.units.discover is False
    assert config.units.gpus == (
        UnitGpus(pattern="vllm.service", gpus=("0", "1:3", "GPU-0a1b")),
        UnitGpus(pattern="sglang@*.service", gpus=("07:00.0", "00000000:8A:00.0")),
    )
    assert config.gpus == GpusConfig(expected=8)
    assert config.policy == Policy(
        resident_bytes=1_610_612_736,
        segment_grace_seconds=60.0,
        orphan_grace_seconds=0.5,
        utilization_ratio=1.0,
        ready_seconds=5400.0,
    )
    assert config.pid_namespace is PidNamespace.TRUST
    assert config.collectors == CollectorsConfig(nvml=False)
    assert config.web == WebConfig(listen="[::1]:0", deadline_seconds=9.5, max_connections=7)
    assert config.shm.kinds == (
        SegmentNames(pattern="acme_*", kind=SegmentKind.TORCH),
        SegmentNames(pattern="[ab]?[!c]", kind=SegmentKind.PYTHON_SHM),
    )
    assert config.titles == (ProcessTitles(pattern="acme::Engine*", engine="acme", role=Role.CORE),)
    assert config.engines == (
        EngineConfig(
            unit="vllm-b.service",
            url="https://[::1]:8443/metrics?model=m",
            token_file=PurePosixPath("/etc/llmhost/b.token"),
        ),
        EngineConfig(unit="vllm-a.service", url="http://localhost:8000"),
    )


@pytest.mark.parametrize(
    "text",
    ["", "\n", "# nothing\n", "---\n", "{}", "null", "units:\npolicy:\n  # resident: 1GiB\nengines:\n", "engines: []"],
)
def test_a_file_that_sets_nothing_is_the_defaults(text: str) -> None:
    assert parse(text, name="f") == Config()


SECTIONS = "units, gpus, policy, host, shm, processes, engines, collectors, web, series"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # keys
        ("units:\n  patern: []", 'f:2: units.patern: unknown key; did you mean "patterns"?'),
        ("\nUnits: {}", 'f:2: Units: unknown key; did you mean "units"?'),
        ("ready: 1h", 'f:1: ready: unknown key; did you mean "policy.ready"?'),
        ("web: {units: 1}", 'f:1: web.units: unknown key; did you mean "units"?'),
        ("web: {zzz: 1}", "f:1: web.zzz: unknown key; valid here: deadline, listen, max_connections"),
        ("shm: {kinds: [{patern: x}]}", 'f:1: shm.kinds[0].patern: unknown key; did you mean "pattern"?'),
        ("host: {<<: {a: b}}", 'f:1: host."<<": unknown key; valid here: pid_namespace'),
        ("web: {}\n\nweb: {}", "f:3: web: duplicate key, first on line 1"),
        ("units:\n  discover: true\n  discover: true", "f:3: units.discover: duplicate key, first on line 2"),
        ("engines:\n- unit: a\n  unit: b", "f:3: engines[0].unit: duplicate key, first on line 2"),
        ("engines: [{}]", "f:1: engines[0]: has no unit and no url"),
        ("? [a]\n: b", "f:1: a key must be text"),
        # the same thing twice
        (
            "units:\n  gpus:\n    vllm: [0]\n    vllm.service: [1]",
            'f:4: units.gpus."vllm.service": "vllm.service" is given twice, first on line 3',
        ),
        ("units: {patterns: [a, a.service]}", 'f:1: units.patterns[1]: "a.service" is given twice, first on line 1'),
        (
            "shm:\n  kinds:\n    - {pattern: x, kind: nccl}\n    - {pattern: x, kind: torch}",
            'f:4: shm.kinds[1]: "x" is given twice, first on line 3',
        ),
        (
            "engines:\n- {unit: x, url: 'http://x:80/a'}\n- {unit: x.service, url: 'http://X/b'}",
            'f:3: engines[1]: "http://x:80 of x.service" is given twice, first on line 2',
        ),
        # lists and mappings
        ("- a", f"f:1: must be a mapping with {SECTIONS}, not a list"),
        ("web: ':10061'", 'f:1: web: must be a mapping with listen, deadline, max_connections, not ":10061"'),
        ("shm: {kinds: [null]}", "f:1: shm.kinds[0]: must be a mapping with pattern, kind, not nothing"),
        ("shm: {kinds: {psm: torch}}", "f:1: shm.kinds: must be a list, not a mapping"),
        ("units: {patterns: vllm}", 'f:1: units.patterns: must be a list, not "vllm"'),
        (
            "units: {gpus: [0]}",
            (
                "f:1: units.gpus: must be a mapping of unit patterns to GPUs, "
                'such as {"vllm-a.service": [0, 1]}, not a list'
            ),
        ),
        (
            "units: {gpus: {a: []}}",
            "f:1: units.gpus.a: an empty list of GPUs; remove the line to leave the GPUs to be found out",
        ),
        # values
        ("policy:\n  resident:\n", "f:2: policy.resident: must be from 0B to 1024TiB, not nothing"),
        ("units: {discover: 1}", 'f:1: units.discover: must be true or false, not "1"'),
        ("units: {patterns: [[a]]}", "f:1: units.patterns[0]: must be a unit pattern, not a list"),
        (
            "units: {patterns: [a.timer]}",
            'f:1: units.patterns[0]: "a.timer": only services can be watched; did you mean "a.service"?',
        ),
        (
            "units: {gpus: {vllm: [all]}}",
            (
                'f:1: units.gpus.vllm[0]: must be a GPU: an index such as 0 or "0:3", '
                'a UUID such as "GPU-…", or a PCI bus id, not "all"'
            ),
        ),
        ("gpus: {expected: -1}", 'f:1: gpus.expected: must be a whole number from 0 to 1024, not "-1"'),
        ("gpus: {expected: 1025}", 'f:1: gpus.expected: must be a whole number from 0 to 1024, not "1025"'),
        ("gpus: {expected: 010}", 'f:1: gpus.expected: must be a whole number from 0 to 1024, not "010"'),
        ("gpus: {expected: 1:30}", 'f:1: gpus.expected: must be a whole number from 0 to 1024, not "1:30"'),
        ("gpus: {expected: 'null'}", 'f:1: gpus.expected: must be a whole number from 0 to 1024, not "null"'),
        (
            "policy: {resident: 85GB}",
            'f:1: policy.resident: "85GB": sizes are in B, KiB, MiB, GiB or TiB; did you mean "85GiB"?',
        ),
        (
            "policy: {segment_grace: 30}",
            'f:1: policy.segment_grace: "30": a time needs a unit (ms, s, m, h or d); did you mean "30s"?',
        ),
        ("policy: {segment_grace: 0s}", 'f:1: policy.segment_grace: must be from 100ms to 1d, not "0s"'),
        ("web: {deadline: 11m}", 'f:1: web.deadline: must be from 100ms to 10m, not "11m"'),
        *(
            (
                f"policy: {{utilization: {ratio}}}",
                f'f:1: policy.utilization: must be a ratio above 0 and up to 1, such as 0.92, not "{ratio}"',
            )
            for ratio in ("0", "1.01", "-0.5", ".nan", "92%")
        ),
        (
            "host: {pid_namespace: trusted}",
            'f:1: host.pid_namespace: "trusted" is no valid choice; did you mean "trust"?',
        ),
        ("host: {pid_namespace: host}", 'f:1: host.pid_namespace: "host" is no valid choice; valid here: auto, trust'),
        ("web: {listen: 9100}", 'f:1: web.listen: a listen address is [HOST]:PORT; did you mean ":9100"?'),
        (
            "engines: [{unit: vllm-*, url: 'http://x'}]",
            'f:1: engines[0].unit: "vllm-*": a unit name cannot have the character "*"',
        ),
        (
            "engines: [{unit: x, url: 'http://secret@x'}]",
            (
                "f:1: engines[0].url: no credentials in a URL: "
                "everybody who may read the config would know them; see token_file"
            ),
        ),
        (
            "engines: [{unit: x, url: 'http://x', token_file: x.token}]",
            'f:1: engines[0].token_file: must be the absolute path of a file, not "x.token"',
        ),
        (
            "processes: {titles: [{pattern: x, engine: Acme, role: core}]}",
            (
                "f:1: processes.titles[0].engine: must be an engine's name of a-z, 0-9, _, . and -, "
                'at most 64 characters, not "Acme"'
            ),
        ),
        *(
            (
                f"shm: {{kinds: [{{pattern: {glob}, kind: nccl}}]}}",
                (
                    "f:1: shm.kinds[0].pattern: "
                    f'must be a glob over segment names (*, ?, [ab], [!ab]), without "/", not {glob}'
                ),
            )
            for glob in ('"/dev/shm/x"', '"x[a"', '"x[^a]"', r'"a\nb"', '""')
        ),
        # YAML
        ("web: {}\n---\nweb: {}", "f:2: a second document; a config file is one document, without a further ---"),
        (
            "policy:\n\tresident: 1GiB",
            (
                "f:2: invalid YAML (column 1): while scanning for the next token: "
                "found character '\\t' that cannot start any token"
            ),
        ),
        (
            "web: {listen: x",
            (
                "f:1: invalid YAML (column 16): while parsing a flow mapping: "
                "expected ',' or '}', but got '<stream end>'"
            ),
        ),
        ("a: b\nc: \x07", r"f:2: the character '\x07' cannot be in YAML, which is UTF-8"),
        ('a: b\nc: "\\Uffffffff"', "f:2: invalid YAML: an impossible escape or directive"),
        (
            "web: !!python/object:os.system {}",
            'f:1: web: no aliases and no tags; put text that starts with "*" or "!" in quotes',
        ),
        (
            "units: &a\n  patterns: [*a]",
            'f:2: units.patterns[0]: no aliases and no tags; put text that starts with "*" or "!" in quotes',
        ),
        ("\n" + "[" * 100_000, "f:2: nested deeper than 16 levels"),
        ("units: {patterns: [" + "a," * 20_000 + "]}", "f:1: more than 10000 values; is this the right file?"),
    ],
)
def test_a_mistake_is_reported_in_one_line(text: str, expected: str) -> None:
    assert complaint(text) == expected


@pytest.mark.parametrize("text", ["host: {pid_namespace: LONG}", "gpus: {LONG: 1}"])
def test_a_long_value_or_key_is_cut_in_the_message(text: str) -> None:
    assert len(complaint(text.replace("LONG", "x" * 1000))) < 200


def test_a_value_is_at_most_1024_characters_long() -> None:
    url = "http://x/".ljust(1024, "x")
    assert parse(f"engines: [{{unit: a, url: '{url}'}}]", name="f").engines[0].url == url
    assert complaint(f"engines: [{{unit: a, url: '{url}x'}}]") == "f:1: engines[0].url: longer than 1024 characters"


def test_the_file_at_the_default_place_is_read_if_there_is_one(tmp_path: Path) -> None:
    default = tmp_path / "llmhost.yml"
    assert load(None, default=default) == Config()
    default.write_text("gpus: {expected: 4}")
    assert load(None, default=default).gpus.expected == 4
    default.write_text("gpu: {}")
    with pytest.raises(ConfigError, match=r'llmhost\.yml:1: gpu: unknown key; did you mean "gpus"'):
        load(None, default=default)


def test_a_file_that_cannot_be_read_is_reported_with_the_reason(tmp_path: Path) -> None:
    link = tmp_path / "link.yml"
    link.symlink_to(link)
    assert complaint_about_file(link) == f"{link}: cannot read it: Too many levels of symbolic links"
    assert complaint_about_file(tmp_path / "no.yml") == f"{tmp_path}/no.yml: cannot read it: No such file or directory"
    assert complaint_about_file(tmp_path) == f"{tmp_path}: cannot read it: Is a directory"


def test_a_file_that_is_not_utf_8_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yml"
    path.write_bytes(b"# fine\n# caf\xe9\n")
    assert complaint_about_file(path) == rf"{path}:2: the character '\udce9' cannot be in YAML, which is UTF-8"


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bom.yml"
    path.write_bytes(b"\xef\xbb\xbfgpus: {expected: 2}")
    assert load(path).gpus.expected == 2


def test_a_huge_file_is_refused_without_reading_all_of_it(tmp_path: Path) -> None:
    assert complaint_about_file(Path("/dev/zero")) == "/dev/zero: larger than 1 MiB; is this the right file?"
    path = tmp_path / "long.yml"
    path.write_bytes(b"#" * LARGEST_FILE_BYTES)
    assert load(path) == Config()


def test_damage_to_a_file_is_a_config_error_of_one_line_whatever_it_is() -> None:
    draw = random.Random(7)
    original = EXAMPLE.read_text()
    alphabet = "\t\n\r :-[]{}&*!|>'\"%@`,?#\\0aZ\x00\x85\u2028\ud800é~<=."
    messages: list[str] = []
    for _ in range(150):
        text = list(original)
        for _ in range(draw.randrange(1, 6)):
            at = draw.randrange(len(text))
            text[at : at + draw.randrange(3)] = draw.choices(alphabet, k=draw.randrange(4))
        try:
            parse("".join(text), name="f")
        except ConfigError as error:
            messages.append(str(error))
    assert [m for m in messages if not m.isprintable()] == []
    assert len(messages) > 30  # most of the file is comments, where damage is harmless
