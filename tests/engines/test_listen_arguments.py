"""A server's addresses by its arguments, which are hints; its sockets decide."""

import pytest

from llmhost.model.engine import EngineServer
from llmhost.model.engine_listen import ListenArguments, parse_listen_arguments
from llmhost.model.ids import UnitId
from llmhost.sources.engine.discover import expected_endpoint


@pytest.mark.parametrize(
    ("engine", "command", "expected"),
    [
        ("vllm", "vllm serve m", ListenArguments(port=8000)),
        (
            "vllm",
            "python -m vllm.entrypoints.openai.api_server --port 9000",
            ListenArguments(port=9000, port_given=True),
        ),
        (
            "vllm",
            "vllm serve m --host=0.0.0.0 --port=1 --port=8001",
            ListenArguments(host="0.0.0.0", port=8001, port_given=True),
        ),
        ("vllm", "vllm serve m --host [::]", ListenArguments(host="::", port=8000)),
        ("vllm", "vllm serve m --uds /run/v.sock", ListenArguments(port=8000, unix_path="/run/v.sock")),
        ("vllm", "vllm serve m --ssl_certfile c.pem --ssl_keyfile k.pem", ListenArguments(port=8000, tls=True)),
        ("vllm", "vllm serve m --headless", ListenArguments(port=8000, headless=True)),
        ("vllm", "vllm serve m --port 70000", ListenArguments(port=None)),
        ("vllm", "vllm serve m --port ${PORT}", ListenArguments(port=None)),
        ("vllm", "vllm serve m --root-path /v", ListenArguments(port=8000)),  # /metrics is served without it too
        ("vllm", "VLLM::APIServer_0", ListenArguments(port=8000)),
        ("sglang", "python -m sglang.launch_server --model-path m", ListenArguments(port=30000)),
        (
            "sglang",
            "sglang serve --model-path m --host ::1 --port 3",
            ListenArguments(host="::1", port=3, port_given=True),
        ),
        ("llamacpp", "llama-server -m m.gguf", ListenArguments(port=8080)),
        ("llamacpp", "llama-server --host /run/l.sock", ListenArguments(port=8080, unix_path="/run/l.sock")),
        (
            "llamacpp",
            "llama-server --api-prefix /llm/ --ssl-cert-file c",
            ListenArguments(port=8080, prefix="/llm", tls=True),
        ),
        ("ollama", "ollama serve --port 1", ListenArguments()),
    ],
)
def test_arguments_say_where_a_server_listens(engine: str, command: str, expected: ListenArguments) -> None:
    assert parse_listen_arguments(engine, tuple(command.split())) == expected


@pytest.mark.parametrize(
    ("argv", "endpoint"),
    [
        (("vllm", "serve", "m"), "http://127.0.0.1:8000"),
        (("vllm", "serve", "m", "--host", "0.0.0.0", "--port", "8001"), "http://127.0.0.1:8001"),
        (("vllm", "serve", "m", "--host", "::"), "http://[::1]:8000"),
        (("vllm", "serve", "m", "--host", "10.0.0.5", "--ssl-certfile", "c"), "https://10.0.0.5:8000"),
        (("vllm", "serve", "m", "--host", "two\nlines"), "http://127.0.0.1:8000"),
        (("vllm", "serve", "m", "--uds", "/run/v"), "unix:/run/v"),
    ],
)
def test_before_it_listens_a_server_has_the_endpoint_of_its_arguments(argv: tuple[str, ...], endpoint: str) -> None:
    assert expected_endpoint(EngineServer(unit=UnitId("vllm.service"), engine="vllm", argv=argv)) == endpoint
