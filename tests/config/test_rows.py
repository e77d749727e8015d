"""Lists of mappings in the config file are as strict as everything else in it."""

from pathlib import PurePosixPath

import pytest

from llmhost.config.load import ConfigError, dump, parse
from llmhost.config.schema import EngineConfig, ProcessTitles, SegmentNames
from llmhost.model.endpoint import parse_metrics_url
from llmhost.model.process import Role
from llmhost.model.segment import SegmentKind


def complaint(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text, name="f")
    message = str(caught.value)
    assert message.isprintable()  # which also means: one line
    return message


def test_rows_are_read_in_the_order_of_the_file() -> None:
    config = parse(
        """\
shm:
  kinds:
    - {pattern: "acme_*", kind: torch}
    - kind: python_shm
      pattern: "[ab]?[!c]"
processes: {titles: [{pattern: "acme::Engine*", engine: acme, role: core}]}
engines:
  - {unit: vllm-b, url: "https://[::1]:8443/metrics?model=m", token_file: /etc/llmhost/b.token}
  - {unit: vllm-a.service, url: "http://localhost:8000"}
""",
        name="f",
    )
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
    assert parse(dump(config), name="dumped") == config


@pytest.mark.parametrize("text", ["engines:", "engines: []", "shm: {kinds: []}", "processes:\n  # titles: []\n"])
def test_no_rows_are_the_default(text: str) -> None:
    config = parse(text, name="f")
    assert (config.engines, config.titles, config.shm.kinds) == ((), (), ())


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (
            "shm: {kinds: {psm: torch}}",
            (
                'f:1: shm.kinds: must be a list of names of segments, such as [{pattern: "acme_*", kind: torch}], '
                "not a mapping"
            ),
        ),
        ("shm: {kinds: [psm]}", 'f:1: shm.kinds[0]: must be a mapping with pattern, kind, not "psm"'),
        ("shm: {kinds: [{pattern: x}]}", "f:1: shm.kinds[0]: has no kind"),
        ("engines: [{}]", "f:1: engines[0]: has no unit and no url"),
        (
            "shm: {kinds: [{pattern: x, kind: semaphores}]}",
            'f:1: shm.kinds[0].kind: "semaphores" is no valid choice; did you mean "semaphore"?',
        ),
        (
            "processes: {titles: [{pattern: x, engine: acme, role: api-server}]}",
            'f:1: processes.titles[0].role: "api-server" is no valid choice; did you mean "api_server"?',
        ),
        (
            "processes: {titles: [{pattern: x, engine: Acme, role: core}]}",
            (
                'f:1: processes.titles[0].engine: "Acme": '
                "an engine's name is of a-z, 0-9, _, . and -, and at most 64 characters"
            ),
        ),
        (
            "shm: {kinds: [{patern: x, kind: nccl}]}",
            'f:1: shm.kinds[0].patern: unknown key; did you mean "pattern"?',
        ),
        (
            "shm: {kinds: [{pattern: 7, kind: nccl}]}",
            "f:1: shm.kinds[0].pattern: must be a glob over segment names, not the number 7",
        ),
        (
            "shm: {kinds: [{pattern: /dev/shm/x, kind: nccl}]}",
            (
                'f:1: shm.kinds[0].pattern: "/dev/shm/x": '
                'matched are names, without directories: there is no "/" in them'
            ),
        ),
        (
            "shm:\n  kinds:\n    - {pattern: x, kind: nccl}\n    - {pattern: x, kind: torch}",
            'f:4: shm.kinds[1]: "x" is given twice, first on line 3',
        ),
        (
            "shm: {kinds: [{pattern: 'x[a', kind: nccl}]}",
            (
                'f:1: shm.kinds[0].pattern: "x[a": '
                'a bad glob: it is not empty, and "[" opens a set such as "[ab]"; "[[]" is the character'
            ),
        ),
        (
            "shm: {kinds: [{pattern: 'x[^a]', kind: nccl}]}",
            'f:1: shm.kinds[0].pattern: "x[^a]": a set is negated with "!", as in "[!abc]"',
        ),
        (
            'shm: {kinds: [{pattern: "a\\nb", kind: nccl}]}',
            'f:1: shm.kinds[0].pattern: "a\\nb": must be at most 1024 characters, all of them printable',
        ),
        (
            "engines: [{unit: vllm.socket, url: 'http://x'}]",
            'f:1: engines[0].unit: "vllm.socket": only services can be watched; did you mean "vllm.service"?',
        ),
        (
            "engines: [{unit: vllm-*, url: 'http://x'}]",
            'f:1: engines[0].unit: "vllm-*": a unit name cannot have the character "*"',
        ),
        (
            "engines: [{unit: x, url: 'http://x', token_file: x.token}]",
            'f:1: engines[0].token_file: "x.token": the path of a file begins with "/" and does not end with it',
        ),
        (
            "engines:\n- {unit: x, url: 'http://x:80/a'}\n- {unit: x.service, url: 'http://X/b'}",
            "f:3: engines[1]: http://x:80 of x.service is given twice, first on line 2",
        ),
        ("engines: [{unit: x, url: 'http://x', token_file: null}]", "f:1: engines[0].token_file: has no value; "),
    ],
)
def test_a_mistake_in_a_row_says_where_it_is_and_what_was_meant(text: str, expected: str) -> None:
    assert complaint(text).startswith(expected)


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("localhost:8000", "must begin with"),
        ("127.0.0.1:8000", "must begin with"),
        ("ftp://x/metrics", "must begin with"),
        ("http:/x", "must begin with"),
        ("file:///etc/passwd", "must begin with"),
        ("http://", "no host in it"),
        ("http://:8000", "no host in it"),
        ("http://1.2.3", "no host in it"),
        ("http://-x", "no host in it"),
        ("http://[::g]:1", "port from 1 to 65535"),  # urllib itself refuses it
        ("http://[fe80::1%25eth0]", "no host in it"),
        ("http://x:0", "the port is from 1 to 65535"),
        ("http://x:65536", "port from 1 to 65535"),
        ("http://x:a", "port from 1 to 65535"),
        ("http://user:secret@x", "no credentials"),
        ("http://secret@x", "no credentials"),
        ("http://x/metrics#a", '"#" part'),
        ("http://x/a b", "without blanks"),
        ("http://x/\u00e9", "ASCII"),
    ],
)
def test_a_url_is_http_has_a_host_and_no_credentials(url: str, why: str) -> None:
    said = complaint(f"engines: [{{unit: x, url: '{url}'}}]")
    assert said.startswith("f:1: engines[0].url: ")
    assert why in said
    assert "secret" not in said


@pytest.mark.parametrize(
    ("url", "endpoint", "target"),
    [
        ("http://127.0.0.1:8000", "http://127.0.0.1:8000", "/metrics"),
        ("http://LLM.example/", "http://llm.example:80", "/metrics"),
        ("HTTPS://llm.example/vllm/metrics", "https://llm.example:443", "/vllm/metrics"),
        ("http://[::1]:8080?model=a%2Fb", "http://[::1]:8080", "/metrics?model=a%2Fb"),
    ],
)
def test_a_url_is_taken_apart_into_endpoint_and_target(url: str, endpoint: str, target: str) -> None:
    parsed = parse_metrics_url(url)
    assert (parsed.endpoint, parsed.target) == (endpoint, target)
