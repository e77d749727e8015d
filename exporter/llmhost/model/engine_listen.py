"""The address of an engine's server, by its arguments. Pure.

Hints, no more: a config file or the environment may say it instead, so a server's own sockets decide where they can be
seen (sources/engine).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llmhost.model.command.words import is_known
from llmhost.model.engine_command import engine_command
from llmhost.model.engine_options import given_options
from llmhost.model.listen import HIGHEST_PORT

_LONGEST_PORT = 5  # digits


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenArguments:
    host: str = ""  # as given; "" where not: every address, or loopback
    port: int | None = None  # the engine's default where not given; None where given and not readable
    port_given: bool = False  # `port` is what the arguments say, not the default
    unix_path: str = ""  # as given, perhaps below the server's working directory; host and port then do not count
    tls: bool = False
    prefix: str = ""  # of every path, "/metrics" too
    headless: bool = False  # an engine without a server


_DEFAULT_PORTS: Mapping[str, int] = {"vllm": 8000, "sglang": 30000, "llamacpp": 8080}


def parse_listen_arguments(engine: str, argv: Sequence[str]) -> ListenArguments:
    """Read them from a server's command line; of an unknown engine there is nothing to read.

    vLLM serves /metrics below --root-path and without it.
    """
    if engine not in _DEFAULT_PORTS:
        return ListenArguments()
    found, own = engine_command(argv)
    read = given_options(engine, own[1:] if found == engine else argv[1:])
    given = {name: value for name, value in read.items() if name == "port" or is_known(value)}
    host = given.get("host", "").strip("[]")
    in_host = engine == "llamacpp" and host.endswith(".sock")  # tools/server: "if it ends with .sock"
    return ListenArguments(
        host="" if in_host else host,
        port=_port(given["port"]) if "port" in given else _DEFAULT_PORTS[engine],
        port_given=_port(given.get("port", "")) is not None,
        unix_path=host if in_host else given.get("unix", ""),
        tls="tls" in given,
        prefix=given.get("prefix", "").rstrip("/"),
        headless="headless" in given,
    )


def _port(text: str) -> int | None:
    readable = text.isascii() and text.isdecimal() and len(text) <= _LONGEST_PORT and 0 < int(text) <= HIGHEST_PORT
    return int(text) if readable else None
