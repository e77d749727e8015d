"""Commands of units in which any word is one that nobody knows.

Each example is a command, and the same command with `$UNKNOWN` in place of some of its words. Whatever is still known
of the second must be so in the first: of the words that the variable may stand for, the first has some.
"""

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields

from hypothesis import example, given
from hypothesis import strategies as st

from llmhost.derive.command import servers_of
from llmhost.model.command.environment import Environment
from llmhost.model.command.shell import shell_commands
from llmhost.model.command.words import is_known
from llmhost.model.engine_arguments import EngineArguments, parse_engine_arguments
from llmhost.model.engine_command import ServerCommand, programs
from llmhost.model.engine_listen import parse_listen_arguments
from llmhost.model.unit import UnitSettings

NOT_KNOWN = object()

OPTIONS = {
    "vllm": (
        "-tp 2|--tensor-parallel-size=4|-pp 2|-dp 2|--data-parallel-size-local 1|--gpu-memory-utilization 0.5|"
        "--gpu-mem 0.4|--port 8001|--device cpu|--max-model-len 4096|--enforce-eager|--served-model-name a b|"
        '--config /etc/v.yml|--device-ids 1,2|--nnodes 2|--headless|-O3|--hf-overrides {"a":1}'
    ),
    "sglang": (
        "--tp 2|--tp-size=4|--pp-size 2|--dp 2|--enable-dp-attention|--mem-fraction-static 0.5|--base-gpu-id 1|"
        "--gpu-id-step 2|--port 30001|--device cpu|--nnodes 2|--num-gpus 2|--trust-remote-code|--context-length 4096"
    ),
    "llamacpp": "--port 8081|--host /run/l.sock|--device none|--device CUDA1|--metrics|-ngl 99|--api-prefix /a",
}
SERVERS = (
    ("vllm", "vllm serve m"),
    ("vllm", "/opt/v/bin/python3 -u -m vllm.entrypoints.openai.api_server --model m"),
    ("vllm", "/opt/v/bin/python3 /opt/v/bin/vllm serve m"),
    ("sglang", "python3 -m sglang.launch_server --model-path m"),
    ("sglang", "sglang serve --model-path m"),
    ("llamacpp", "llama-server -m /m.gguf"),
)
WRAPPERS = (
    "env A=1|env CUDA_VISIBLE_DEVICES=1|env -u CUDA_VISIBLE_DEVICES|env -i A=1|nice -n 5|numactl -N 0 -m 0|"
    "taskset -c 0-3|timeout 10|timeout -k 5 10|stdbuf -oL|chrt -f 10|ionice -c 2 -n 0|setpriv --reuid 1000|"
    "sudo -u llm|sudo -E CUDA_VISIBLE_DEVICES=2|uv run|uv --directory /x run|conda run -n v|setsid|nohup|"
    "systemd-run --scope -p A=b|runuser -u llm --|doas -u llm|time -p|prlimit --nofile=1|tini --|"
    'docker run --rm --gpus all x/y|docker run --gpus "device=1" -e CUDA_VISIBLE_DEVICES=0 x/y|'
    "podman run --device nvidia.com/gpu=1 x/y"
)
IN_SHELL = (
    "exec|CUDA_VISIBLE_DEVICES=2|export CUDA_VISIBLE_DEVICES=1 ;|export A=1 &&|cd /x &&|set -e ;|ulimit -n 9 ;|"
    "[ -e /x ] &&|command|if true ; then|time|A=b"
)


@dataclass(frozen=True)
class Command:
    """A command, and what is left of it where some of its words are not known."""

    whole: tuple[str, ...]
    left: tuple[str, ...]


def pieces(text: str) -> st.SearchStrategy[list[str]]:
    return st.sampled_from([piece.split() for piece in text.split("|")])


@st.composite
def servers(draw: st.DrawFn) -> list[str]:
    engine, program = draw(st.sampled_from(SERVERS))
    options = draw(st.lists(pieces(OPTIONS[engine]), max_size=4))
    return program.split() + [word for option in options for word in option]


@st.composite
def commands(draw: st.DrawFn) -> Command:
    words = draw(servers())
    shell = draw(st.sampled_from(("", "", "sh", "bash")))
    before = draw(st.lists(pieces(IN_SHELL if shell else WRAPPERS), max_size=2))
    words = [word for piece in before for word in piece] + words
    if shell and ["if", "true", ";", "then"] in before:
        words += [";", "fi"]
    start = draw(st.integers(0, len(words)))
    end = draw(st.integers(start, min(start + 3, len(words))))
    unknown = draw(st.sampled_from(("$UNKNOWN", "${UNKNOWN}", "x${UNKNOWN}")))
    if unknown != "$UNKNOWN" and end != start + 1:
        start = min(start, len(words) - 1)
        end = start + 1
    if unknown.startswith("x"):
        kept = draw(st.integers(0, len(words[start])))
        unknown = words[start][:kept] + "${UNKNOWN}"
    left = [*words[:start], unknown, *words[end:]]
    if not shell:
        return Command(tuple(words), tuple(left))
    quote = draw(st.booleans()) and unknown.endswith("}")
    code = [_quoted(word) for word in words]
    part = f'"{unknown}"' if quote else unknown
    left_code = [*code[:start], part, *code[end:]]
    return Command((shell, "-c", " ".join(code)), (shell, "-c", " ".join(left_code)))


def _quoted(word: str) -> str:
    return word if word in {";", "&&", "[", "]"} or "=" in word else shlex.quote(word)


def known(command: Sequence[str]) -> Mapping[str, object] | None:
    """Give what is known of the first server that a unit with this command starts; None where it starts none."""
    found = servers_of(UnitSettings(exec_start=(tuple(command),), environment=(("CUDA_VISIBLE_DEVICES", "3"),)))
    if not found:
        return None
    server = found[0]
    arguments = parse_engine_arguments(server.engine, server.argv)
    facts: dict[str, object] = {"engine": server.engine, **_arguments(server, arguments)}
    visible = server.environment.get("CUDA_VISIBLE_DEVICES")
    facts["visible"] = visible if visible is None or is_known(visible) else NOT_KNOWN
    facts["gpus"] = server.gpus if all(map(is_known, server.gpus or ())) else NOT_KNOWN
    return facts


def _arguments(server: ServerCommand, arguments: EngineArguments) -> Mapping[str, object]:
    """Give each argument; with a config file those that are not given are not known."""
    facts: dict[str, object] = {}
    defaults = EngineArguments()
    for name in (field.name for field in fields(arguments) if field.name not in {"has_config_file", "port"}):
        value = getattr(arguments, name)
        unknown = value is None and (name != "utilization" or arguments.utilization_given)
        unknown |= name == "without_gpu" and not value  # an engine is taken to use GPUs unless it says that it does not
        in_file = arguments.has_config_file and value == getattr(defaults, name)
        facts[name] = NOT_KNOWN if unknown or in_file else value
    if arguments.utilization is None and arguments.utilization_given:
        facts["utilization_given"] = NOT_KNOWN
    listen = parse_listen_arguments(server.engine, server.argv)
    facts["port"] = listen.port if listen.port_given else NOT_KNOWN
    return facts


@given(commands())
def test_what_is_known_of_a_command_with_an_unknown_word_is_so_of_each_that_it_may_be(command: Command) -> None:
    whole, left = known(command.whole), known(command.left)
    if whole is None or left is None:
        return  # no server is known to be started: nothing is said of it
    for name, value in left.items():
        if value is not NOT_KNOWN and whole[name] is not NOT_KNOWN:
            assert value == whole[name], (name, value, whole[name])


words = st.text(st.sampled_from(" \t\n$(){}[]'\"`\\;&|<>!#*~=-+@0aA_/:,.\0é"), max_size=12)
some_words = st.one_of(
    words,
    st.sampled_from(["vllm", "serve", "bash", "-c", "env", "docker", "run", "eval", "sudo", "python3", "-m", "--"]),
)


@given(st.lists(some_words, max_size=12), st.lists(st.tuples(st.sampled_from("ABC"), words), max_size=3))
@example(["bash", "-c", "vllm serve m & wait"], [])
def test_no_command_is_too_strange_to_read(command: list[str], environment: list[tuple[str, str]]) -> None:
    unit = UnitSettings(exec_start=(tuple(command),), environment=tuple(environment))
    for server in servers_of(unit):
        assert server.engine
        parse_engine_arguments(server.engine, server.argv)
        parse_listen_arguments(server.engine, server.argv)
    programs([command], Environment(values=dict(environment)))


@given(st.lists(some_words, max_size=25).map(" ".join))
@example("for a in $(b; do vllm serve m; done")
def test_no_shell_code_is_too_strange_to_read(code: str) -> None:
    for command in shell_commands(code, Environment(), ()):
        assert all(isinstance(word, str) for word in command.words)
