"""Every mistake is told in one line: the file, the line, the key, and what was probably meant."""

import random
from pathlib import Path

import pytest

from llmhost.config.load import LARGEST_FILE_BYTES, ConfigError, load, parse
from llmhost.config.schema import CollectorsConfig, Config, GpusConfig, PidNamespace, Policy, UnitGpus, WebConfig

EXAMPLE = Path(__file__).parents[2] / "systemd" / "llmhost.yml.example"


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, name="llmhost.yml")
    message = str(caught.value)
    assert message.isprintable()  # which also means: one line
    return message


def test_a_whole_file_is_read() -> None:
    config = parse(
        """\
units:
  patterns: [vllm, "*-llm.service", 'sglang@*']
  discover: off
  gpus:
    vllm: [0, 1:3, "GPU-0a1b"]
    sglang@*: [07:00.0, 00000000:8A:00.0]
gpus: {expected: 8}
policy: {resident: 1.5GiB, segment_grace: 1m, orphan_grace: 500ms, utilization: 1, ready: 1h30m}
host: {pid_namespace: trust}
collectors: {nvml: false}
web: {listen: "[::1]:0", deadline: 9.5s, max_connections: 7}
""",
        name="x",
    )
    assert config.units.patterns == ("vllm.service", "*-llm.service", "sglang@*.service")
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


@pytest.mark.parametrize(
    "text", ["", "\n", "# nothing\n", "---\n", "{}", "null", "units:\npolicy:\n  # resident: 1GiB\n"]
)
def test_a_file_that_sets_nothing_is_the_defaults(text: str) -> None:
    assert parse(text, name="x") == Config()


def test_anchors_and_aliases_are_followed() -> None:
    config = parse("policy: {segment_grace: &grace 20s, orphan_grace: *grace}", name="x")
    assert config.policy.segment_grace_seconds == config.policy.orphan_grace_seconds == 20.0


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("units:\n  patern: []", 'llmhost.yml:2: units.patern: unknown key; did you mean "patterns"?'),
        ("\nUnits: {}", 'llmhost.yml:2: Units: unknown key; did you mean "units"?'),
        ("resident: 1GiB", 'llmhost.yml:1: resident: unknown key; did you mean "policy.resident"?'),
        ("web: {zzz: 1}", "llmhost.yml:1: web.zzz: unknown key; valid here: deadline, listen, max_connections"),
        (
            "policy: {<<: {resident: 1B}}",
            'llmhost.yml:1: policy."<<": merge keys are not supported; write the keys out',
        ),
        (
            "units:\n  discover: true\n\n  discover: true",
            "llmhost.yml:4: units.discover: duplicate key, first on line 2",
        ),
        ("web: {}\nweb: {}", "llmhost.yml:2: web: duplicate key, first on line 1"),
        (
            "units:\n  gpus:\n    vllm: [0]\n    vllm.service: [1]",
            'llmhost.yml:4: units.gpus."vllm.service": "vllm.service" is given twice, first on line 3',
        ),
        ("units: {patterns: [a, a.service]}", 'llmhost.yml:1: units.patterns[1]: "a.service" is listed twice'),
        ('units: {discover: "on"}', 'llmhost.yml:1: units.discover: must be true or false, not "on"'),
        ("units: {discover: 1}", "llmhost.yml:1: units.discover: must be true or false, not the number 1"),
        (
            "units: {patterns: vllm}",
            'llmhost.yml:1: units.patterns: must be a list of unit patterns, such as ["vllm-*.service"], not "vllm"',
        ),
        (
            "units: {patterns: [on]}",
            "llmhost.yml:1: units.patterns[0]: must be a unit pattern, not on, which YAML takes for true or false",
        ),
        (
            "units: {patterns: [a.timer]}",
            'llmhost.yml:1: units.patterns[0]: "a.timer": only services can be watched; did you mean "a.service"?',
        ),
        (
            "units: {gpus: {vllm: [all]}}",
            (
                'llmhost.yml:1: units.gpus.vllm[0]: must be a GPU: an index such as 0 or "0:3", '
                'a UUID such as "GPU-…", or a PCI bus id, not "all"'
            ),
        ),
        ("gpus: {expected: -1}", "llmhost.yml:1: gpus.expected: must be from 0 to 1024, not -1"),
        (
            "gpus: {expected: 010}",
            'llmhost.yml:1: gpus.expected: write the number in plain decimal digits, not as "010"',
        ),
        (
            "gpus: {expected: 1:30}",
            'llmhost.yml:1: gpus.expected: write the number in plain decimal digits, not as "1:30"',
        ),
        (
            "gpus: {expected: on}",
            "llmhost.yml:1: gpus.expected: must be a whole number, not on, which YAML takes for true or false",
        ),
        ("gpus: {expected: 8.0}", "llmhost.yml:1: gpus.expected: must be a whole number, not the number 8.0"),
        ("series: {max_per_family: 0}", "llmhost.yml:1: series.max_per_family: must be from 1 to 1000000, not 0"),
        (
            "policy: {resident: 85GB}",
            'llmhost.yml:1: policy.resident: "85GB": sizes are in B, KiB, MiB, GiB or TiB; did you mean "85GiB"?',
        ),
        (
            "policy: {segment_grace: 30}",
            'llmhost.yml:1: policy.segment_grace: "30": a time needs a unit (ms, s, m, h or d); did you mean "30s"?',
        ),
        (
            "policy: {orphan_grace: 1:30}",
            (
                'llmhost.yml:1: policy.orphan_grace: "1:30": not a time, such as "30s" or "1h30m"; '
                "units are ms, s, m, h or d"
            ),
        ),
        ("policy: {segment_grace: -5s}", 'llmhost.yml:1: policy.segment_grace: "-5s": a time cannot be negative'),
        ("policy: {segment_grace: 0s}", "llmhost.yml:1: policy.segment_grace: must be from 100ms to 1d, not 0s"),
        ("web: {deadline: 11m}", "llmhost.yml:1: web.deadline: must be from 100ms to 10m, not 11m"),
        ("policy: {utilization: 0}", "llmhost.yml:1: policy.utilization: must be above 0 and up to 1, not 0"),
        ("policy: {utilization: 1.01}", "llmhost.yml:1: policy.utilization: must be above 0 and up to 1, not 1.01"),
        ("policy: {utilization: .nan}", "llmhost.yml:1: policy.utilization: must be above 0 and up to 1, not .nan"),
        (
            "policy: {utilization: 92%}",
            "llmhost.yml:1: policy.utilization: a ratio, not a percentage; did you mean 0.92?",
        ),
        (
            "policy: {utilization: '0.9'}",
            'llmhost.yml:1: policy.utilization: must be a ratio above 0 and up to 1, such as 0.92, not "0.9"',
        ),
        (
            "policy:\n  resident:\n",
            (
                "llmhost.yml:2: policy.resident: has no value; give a quantity with its unit, such as 1000MiB, "
                "or remove the key to have its default"
            ),
        ),
        (
            "host: {pid_namespace: trusted}",
            'llmhost.yml:1: host.pid_namespace: "trusted" is no valid choice; did you mean "trust"?',
        ),
        (
            "host: {pid_namespace: host}",
            'llmhost.yml:1: host.pid_namespace: "host" is no valid choice; valid here: auto, trust',
        ),
        ("web: {listen: 9100}", 'llmhost.yml:1: web.listen: a listen address is [HOST]:PORT; did you mean ":9100"?'),
        (
            "web: {listen: '::1:9100'}",
            (
                'llmhost.yml:1: web.listen: an IPv6 address stands in brackets, such as ":10061", '
                '"127.0.0.1:10061" or "[::1]:10061"'
            ),
        ),
        (
            "- a",
            (
                "llmhost.yml:1: the top must be a mapping with "
                "units, gpus, policy, host, shm, processes, engines, collectors, web, series, not a list"
            ),
        ),
        (
            "web: ':10061'",
            'llmhost.yml:1: web: must be a mapping with listen, deadline, max_connections, not ":10061"',
        ),
        (
            "web: {}\n---\nweb: {}",
            "llmhost.yml:2: a second document; a config file is one document, without a further ---",
        ),
        ("policy:\n\tresident: 1GiB", "llmhost.yml:2: invalid YAML (column 1): a tab; indent with spaces"),
        (
            "units:\n  patterns: [*.service]",
            'llmhost.yml:2: invalid YAML (column 15): put a value that starts with "*" in quotes',
        ),
        (
            "web:\n  listen: [::1]:10061",
            'llmhost.yml:2: invalid YAML (column 12): put text that starts with "[" in quotes',
        ),
        ("web: {listen: x", "llmhost.yml:1: invalid YAML (column 16): expected ',' or '}', but got '<stream end>'"),
        ("a: b\nc: \x07", r"llmhost.yml:2: the character '\x07' cannot be in YAML"),
        ("web: !!python/object:os.system {}", "llmhost.yml:1: web: the tag !!python/object:os.system is not supported"),
        ("? [a]\n: b", "llmhost.yml:1: a key must be text, not a list or a mapping"),
        ("\n" + "[" * 100_000, "llmhost.yml:2: nested deeper than 16 levels"),
        (
            "units: {patterns: [" + "a," * 20_000 + "]}",
            "llmhost.yml:1: more than 10000 values; is this the right file?",
        ),
        ("a: &a [x, *a]", "llmhost.yml:1: aliases make this too deep or too large"),
        ('a: "\\Uffffffff"', "llmhost.yml: invalid YAML: an impossible escape or directive"),
    ],
)
def test_a_mistake_is_told_in_one_line(text: str, expected: str) -> None:
    assert complaint(text) == expected


def test_aliases_that_multiply_end_in_an_error_and_not_in_memory() -> None:
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x]"] + [f"a{n}: &a{n} [{','.join([f'*a{n - 1}'] * 9)}]" for n in range(1, 10)]
    assert "aliases make this too deep or too large" in complaint("\n".join(lines))


def test_a_long_value_is_cut_in_the_message() -> None:
    assert len(complaint("host: {pid_namespace: " + "x" * 5000 + "}")) < 200


def test_no_file_at_the_default_place_is_the_defaults(tmp_path: Path) -> None:
    assert load(None, default=tmp_path / "llmhost.yml") == Config()


def test_a_file_at_the_default_place_is_read(tmp_path: Path) -> None:
    (tmp_path / "llmhost.yml").write_text("gpus: {expected: 4}")
    assert load(None, default=tmp_path / "llmhost.yml").gpus.expected == 4


def test_a_mistake_in_the_file_at_the_default_place_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "llmhost.yml").write_text("gpu: {}")
    with pytest.raises(ConfigError, match=r'llmhost\.yml:1: gpu: unknown key; did you mean "gpus"'):
        load(None, default=tmp_path / "llmhost.yml")


def test_a_file_that_was_asked_for_must_exist(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.yml")
    assert str(caught.value) == f"{tmp_path}/none.yml: no such file"


def test_a_directory_is_not_a_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path)
    assert str(caught.value) == f"{tmp_path}: is a directory, not a file"


def test_a_link_that_leads_to_itself_says_so(tmp_path: Path) -> None:
    path = tmp_path / "llmhost.yml"
    path.symlink_to(path)
    with pytest.raises(ConfigError, match="cannot read it: Too many levels of symbolic links"):
        load(path)


def test_a_file_that_is_not_utf_8_names_the_line(tmp_path: Path) -> None:
    path = tmp_path / "latin.yml"
    path.write_bytes(b"# fine\n# caf\xe9\n")
    with pytest.raises(ConfigError) as caught:
        load(path)
    assert str(caught.value) == f"{path}:2: not UTF-8; save the file as UTF-8"


def test_a_byte_order_mark_is_no_mistake(tmp_path: Path) -> None:
    path = tmp_path / "bom.yml"
    path.write_bytes(b"\xef\xbb\xbfgpus: {expected: 2}")
    assert load(path).gpus.expected == 2


def test_a_huge_file_is_refused_without_reading_all_of_it() -> None:
    with pytest.raises(ConfigError) as caught:
        load(Path("/dev/zero"))
    assert str(caught.value) == "/dev/zero: larger than 1 MiB; is this the right file?"


def test_a_file_at_the_bound_is_read(tmp_path: Path) -> None:
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
