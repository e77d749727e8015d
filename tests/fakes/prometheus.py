"""A real Prometheus on loopback, for as long as its `with`."""

import http.client
import json
import os
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.parse
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tests.fakes.needs import needs


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


class Prometheus:
    """Runs with `config` (its YAML as text); `query` gives instant vectors.

    What it writes stays only where `directory` is given. `options` are more of its command line.
    """

    def __init__(
        self, config: str, *, directory: Path | None = None, port: int | None = None, options: Sequence[str] = ()
    ) -> None:
        program = needs("prometheus")  # first, as a skip leaves nothing open
        self._keeps = directory is not None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="prometheus-"))
        self.port = port or free_port()
        path = self._directory / "prometheus.yml"
        path.write_text(config)
        self._log = (self._directory / "prometheus.log").open("w+")
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={path}",
                f"--storage.tsdb.path={self._directory / 'data'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                *options,
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "no_proxy": "*"},
        )
        self._wait_until_ready()

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def query(self, expression: str) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.api(f"query?query={urllib.parse.quote(expression)}")["data"]["result"]
        return found

    def value(self, expression: str) -> float:
        """Give the one sample's value."""
        (sample,) = self.query(expression)
        return float(sample["value"][1])

    def wait_for(self, expression: str, seconds: float = 120.0) -> None:
        """Wait until the query has a result."""
        until = time.monotonic() + seconds
        while not self.query(expression):
            assert time.monotonic() < until, f"never seen: {expression}"
            time.sleep(0.1)

    def api(self, path: str) -> Any:  # noqa: ANN401 - JSON
        # A fleet's hours take seconds to be asked for, and more where the machine is busy.
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request("GET", f"/api/v1/{path}")
            answer = connection.getresponse()
            body = answer.read()
            assert answer.status == http.HTTPStatus.OK, body
            return json.loads(body)

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + 120
        while True:
            try:
                with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
                    connection.request("GET", "/-/ready")
                    if connection.getresponse().status == http.HTTPStatus.OK:
                        return
            except OSError:
                pass
            assert time.monotonic() < until, self.log
            assert self.process.poll() is None, self.log
            time.sleep(0.05)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._keeps:
            self.process.terminate()  # it writes down what it has
        else:
            self.process.kill()
        self.process.wait()
        self._log.close()
        if not self._keeps:
            shutil.rmtree(self._directory)
