"""URLs of metrics, as users write them: "http://127.0.0.1:8000", "https://llm.example/vllm/metrics"."""

import ipaddress
import re
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from llmhost.model.listen import HIGHEST_PORT

DEFAULT_PATH: Final = "/metrics"
_DEFAULT_PORTS: Final = (("http", 80), ("https", 443))
_HOST_NAME = re.compile(r"(?!-)[A-Za-z0-9_-]{1,63}(?:\.[A-Za-z0-9_-]{1,63})*\.?")
_EXAMPLE = 'such as "http://127.0.0.1:8000/metrics"'


@dataclass(frozen=True, slots=True, kw_only=True)
class MetricsUrl:
    scheme: str  # http or https
    host: str  # an address, without brackets, or a name; in lower case
    port: int
    target: str = DEFAULT_PATH  # path and query, as they go into a request

    @property
    def authority(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"

    @property
    def endpoint(self) -> str:
        return f"{self.scheme}://{self.authority}"


def parse_metrics_url(text: str) -> MetricsUrl:
    """Read a URL; "/metrics" is its path where it has none.

    Raises ValueError with one line that says what is wrong. Nothing is looked up: a name need not exist.
    """
    if not text.isascii() or not text.isprintable() or " " in text:
        raise ValueError("a URL is of ASCII characters without blanks; write others as %XX")
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError:
        raise ValueError(f"no URL with a port from 1 to {HIGHEST_PORT}, {_EXAMPLE}") from None
    ports = dict(_DEFAULT_PORTS)
    if parts.scheme not in ports or "://" not in text:
        raise ValueError(f'must begin with "http://" or "https://", {_EXAMPLE}')
    if "@" in parts.netloc:
        raise ValueError("no credentials in a URL: everybody who may read the config would know them; see token_file")
    if "#" in text:
        raise ValueError('must not have a "#" part')
    if not parts.hostname or not _is_host(parts.hostname, bracketed="[" in parts.netloc):
        raise ValueError(f"no host in it that could be, {_EXAMPLE}")
    if port == 0:
        raise ValueError(f"the port is from 1 to {HIGHEST_PORT}, {_EXAMPLE}")
    path = parts.path if parts.path not in {"", "/"} else DEFAULT_PATH
    return MetricsUrl(
        scheme=parts.scheme,
        host=parts.hostname,
        port=ports[parts.scheme] if port is None else port,
        target=path + (f"?{parts.query}" if parts.query else ""),
    )


def _is_host(host: str, *, bracketed: bool) -> bool:
    try:
        if bracketed and "%" not in host:
            ipaddress.IPv6Address(host)
        elif re.fullmatch(r"[0-9.]+", host):
            ipaddress.IPv4Address(host)
        else:
            return _HOST_NAME.fullmatch(host) is not None
    except ValueError:
        return False
    return True
