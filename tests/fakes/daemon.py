"""The real `llmhost serve` in a process of its own, on loopback."""

import http.client
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

LLMHOST = (sys.executable, "-m", "llmhost")
NO_BUS = "unix:path=/nonexistent/system_bus_socket"
NO_STATE = "/nonexistent/llmhost"  # else /var/lib/llmhost of the machine that tests


def environment(more: Mapping[str, str] | None = None) -> dict[str, str]:
    """Our environment without what a service manager put there; no bus and no history unless `more` names them."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name not in {"NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID", "JOURNAL_STREAM"}
    }
    return kept | {"DBUS_SYSTEM_BUS_ADDRESS": NO_BUS, "STATE_DIRECTORY": NO_STATE} | dict(more or {})


class Daemon:
    """Runs until the end of its `with`; `log` is what it wrote to stderr so far."""

    def __init__(
        self,
        *arguments: str,
        env: Mapping[str, str] | None = None,
        prefix: Sequence[str] = (),
        config: Path | None = None,
        program: Sequence[str] = LLMHOST,
    ) -> None:
        more = () if config is None else ("--config", str(config))
        command = [*prefix, *program, "serve", "--web.listen-address", "127.0.0.1:0", *more, *arguments]
        self.process = subprocess.Popen(command, env=environment(env), stderr=subprocess.PIPE, text=True)
        self._lines: list[str] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        try:
            self.port = int(self.logged(r"serves on http://127\.0\.0\.1:(\d+)")[1])
        except BaseException:
            self.__exit__(None, None, None)
            raise

    @property
    def log(self) -> str:
        with self._news:
            return "".join(self._lines)

    def logged(self, pattern: str, seconds: float = 120.0) -> re.Match[str]:
        """Wait until the log has the pattern."""
        until = time.monotonic() + seconds
        with self._news:
            while True:
                found = re.search(pattern, "".join(self._lines))
                if found is not None:
                    return found
                remaining = until - time.monotonic()
                assert remaining > 0, f"no {pattern!r} in {''.join(self._lines)!r}"
                assert self.process.poll() is None or self._reader.is_alive(), "".join(self._lines)
                self._news.wait(remaining)

    def get(
        self, path: str = "/metrics", headers: Mapping[str, str] | None = None, method: str = "GET"
    ) -> tuple[int, http.client.HTTPMessage, str]:
        with closing(http.client.HTTPConnection("127.0.0.1", self.port, timeout=60)) as connection:
            connection.request(method, path, headers=dict(headers or {}))
            answer = connection.getresponse()
            return answer.status, answer.headers, answer.read().decode()

    def end(self, number: int = signal.SIGTERM, seconds: float = 10.0) -> tuple[int, float]:
        """Send the signal; give exit status and how long it took, in seconds."""
        began = time.monotonic()
        self.process.send_signal(number)
        status = self.process.wait(seconds)
        return status, time.monotonic() - began

    def _read(self) -> None:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            with self._news:
                self._lines.append(line)
                self._news.notify_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)
        assert self.process.stderr is not None
        self.process.stderr.close()
