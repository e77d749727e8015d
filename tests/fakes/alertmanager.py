"""A real Alertmanager on loopback, for as long as its `with`; and the example that ships, with other receivers.

It gossips with nobody. `post` gives it alerts as a Prometheus would, `quietened` tells which are inhibited.
"""

import http.client
import json
import os
import shutil
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml
from tests.fakes.needs import needs
from tests.fakes.prometheus import free_port

EXAMPLE = Path(__file__).parents[2] / "alerts" / "alertmanager.example.yml"


def example(url: str, change: Callable[[dict[str, Any]], None]) -> str:
    """Give the example with webhooks at `url` for receivers, and each of its routes changed. The rest stays."""
    config: dict[str, Any] = yaml.safe_load(EXAMPLE.read_text())
    config["global"] = {}
    config["receivers"] = [
        {"name": receiver["name"], "webhook_configs": [{"url": url, "send_resolved": receiver["name"] != "dead-man"}]}
        for receiver in config["receivers"]
    ]
    for route in (config["route"], *config["route"]["routes"]):
        change(route)
    return yaml.safe_dump(config)


class Alertmanager:
    """Runs with `config` (its YAML as text)."""

    def __init__(self, config: str, *, directory: Path | None = None, port: int | None = None) -> None:
        program = needs("alertmanager")  # first, as a skip leaves nothing open
        self._keeps = directory is not None
        self._directory = directory or Path(tempfile.mkdtemp(prefix="alertmanager-"))
        self.port = port or free_port()
        path = self._directory / "alertmanager.yml"
        path.write_text(config)
        self._log = (self._directory / "alertmanager.log").open("w+")
        self.process = subprocess.Popen(
            [
                program,
                f"--config.file={path}",
                f"--storage.path={self._directory / 'alertmanager'}",
                f"--web.listen-address=127.0.0.1:{self.port}",
                "--cluster.listen-address=",
            ],
            stdout=self._log,
            stderr=subprocess.STDOUT,
            env={"PATH": os.environ["PATH"], "no_proxy": "*"},
        )
        try:
            self._wait_until_ready()
        except BaseException:
            self.__exit__(None, None, None)
            raise

    @property
    def log(self) -> str:
        return Path(self._log.name).read_text()

    def post(self, alerts: Iterable[Mapping[str, str]], *, firing: bool = True) -> None:
        """Give it alerts with these labels, which fire from now on for an hour, or have just ended."""
        now = datetime.now(UTC)
        ends = now + timedelta(hours=1) if firing else now
        starts = now - timedelta(minutes=1)
        body = [{"labels": dict(alert), "startsAt": starts.isoformat(), "endsAt": ends.isoformat()} for alert in alerts]
        self._ask("POST", "/api/v2/alerts", json.dumps(body))

    def quietened(self) -> dict[frozenset[tuple[str, str]], bool]:
        """Give all alerts that it has, by their labels, and whether another keeps each quiet."""
        return {
            frozenset(load["labels"].items()): bool(load["status"]["inhibitedBy"])
            for load in json.loads(self._ask("GET", "/api/v2/alerts"))
        }

    def names(self, *, quietened: bool) -> set[str]:
        return {dict(labels)["alertname"] for labels, quiet in self.quietened().items() if quiet is quietened}

    def _ask(self, method: str, path: str, body: str | None = None) -> bytes:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, body, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
            assert answer.status == http.HTTPStatus.OK, said
            return said

    def _wait_until_ready(self) -> None:
        until = time.monotonic() + 120
        while True:
            try:
                self._ask("GET", "/-/ready")
            except (OSError, http.client.HTTPException):
                assert self.process.poll() is None, self.log
                assert time.monotonic() < until, self.log
                time.sleep(0.05)
            else:
                return

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.process.kill()
        self.process.wait()
        self._log.close()
        if not self._keeps:
            shutil.rmtree(self._directory)
