"""A real Prometheus that has a written history (tests/grafana/histories), and what the recording rules make of it.

    with Backfilled(incident()) as prometheus:
        prometheus.at(3 * HOUR, "sum(llmhost_gpu_holder_memory_bytes)")    # second of the history -> its instant vector
        prometheus.over(0, 6 * HOUR, 60, "llmhost_gpu_up")                 # -> a matrix, as the API gives it
        prometheus.began, prometheus.ended                                 # in seconds since 1970

The history ends at 2026-01-06T12:00:00Z, or at `end`. `python -m tests.fakes.backfilled incident --port 9090 --now`
keeps one running that ends now, for pictures; any origin may ask it.

Series end here where they end in real life: promtool writes no stale markers, so Prometheus looks back for less than
the time between two scrapes. As all samples lie on one grid, a series is gone at the first scrape without it, as
after a marker.

Rules are evaluated at each scrape, by Prometheus's own query API, and written as one more set of blocks: `promtool tsdb
create-blocks-from rules` does the same, but makes a block for each rule and two hours (hundreds, which slow each query
down) and needs Prometheus restarted for each level of rules that use others. Here a rule that uses another one has its
text in place of its name.
"""

import argparse
import atexit
import contextlib
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import urllib.parse
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from pathlib import Path
from types import TracebackType
from typing import Any

import yaml
from tests.fakes.needs import needs
from tests.fakes.prometheus import Prometheus
from tests.grafana.histories.index import HISTORIES
from tests.grafana.histories.series import END, History, Labels

RECORDINGS = Path(__file__).parents[2] / "alerts" / "llmhost.recording.rules.yml"
_BLOCK = 7200  # promtool reads its whole file once for each block that it makes, so each file here has one
_NO_SCRAPES = "global: {}\n"

Sampled = Iterable[tuple[str, Labels, list[float | None]]]


class Backfilled(Prometheus):
    def __init__(self, history: History, *, end: float = END, port: int | None = None) -> None:
        needs("prometheus")  # first, as writing the history takes seconds
        self.history = history
        self.began, self.ended = end - history.seconds, end
        self._folder = Path(tempfile.mkdtemp(prefix="backfilled-"))
        options = [
            "--storage.tsdb.retention.time=10y",
            "--web.cors.origin=.*",
            f"--query.lookback-delta={history.every - 1}s999ms",
        ]
        times = [self.began + second for second in history.scrapes()]
        try:
            _write(history.sampled(self.began), times, self._folder)
            with Prometheus(_NO_SCRAPES, directory=self._folder, options=options) as plain:
                recorded = list(_recorded(plain, times, history.every))
            _write(recorded, times, self._folder)
            super().__init__(_NO_SCRAPES, directory=self._folder, port=port, options=options)
        except BaseException:
            shutil.rmtree(self._folder)
            raise

    def at(self, second: float, expression: str) -> list[dict[str, Any]]:
        """Give the instant vector at that second of the history."""
        query = urllib.parse.urlencode({"query": expression, "time": self.began + second})
        found: list[dict[str, Any]] = self.api(f"query?{query}")["data"]["result"]
        return found

    def over(self, start: float, end: float, step: float, expression: str) -> list[dict[str, Any]]:
        """Give the matrix between two seconds of the history."""
        return matrix(self, expression, self.began + start, self.began + end, step)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, traceback)
        shutil.rmtree(self._folder)


@cache
def shared(name: str) -> Backfilled:
    """Give the history of that name, which tests of the whole run share."""
    made = Backfilled(HISTORIES[name]())
    atexit.register(made.__exit__, None, None, None)
    return made


def matrix(prometheus: Prometheus, expression: str, start: float, end: float, step: float) -> list[dict[str, Any]]:
    query = urllib.parse.urlencode({"query": expression, "start": start, "end": end, "step": step})
    found: list[dict[str, Any]] = prometheus.api(f"query_range?{query}")["data"]["result"]
    return found


def without_name(metric: Mapping[str, str]) -> Labels:
    return tuple(sorted((key, value) for key, value in metric.items() if key != "__name__"))


def rules() -> dict[str, str]:
    """Give each recording rule's expression, without names of others in it."""
    found: dict[str, str] = {}
    for group in yaml.safe_load(RECORDINGS.read_text(encoding="utf-8"))["groups"]:
        for rule in group["rules"]:
            found[rule["record"]] = _RECORDED.sub(lambda match: f"({found[match[0]]})", rule["expr"])
    return found


_RECORDED = re.compile(r"\b[a-z_]+:[a-z_]+:\w+\b")  # alone, as rules use each other: an instant vector, all labels


def _recorded(
    prometheus: Prometheus, times: Sequence[float], every: int
) -> Iterator[tuple[str, Labels, list[float | None]]]:
    for name, expression in rules().items():
        for row in matrix(prometheus, expression, times[0], times[-1], every):
            values = {float(at): float(value) for at, value in row["values"]}
            yield name, without_name(row["metric"]), [values.get(at) for at in times]


def _write(series: Sampled, times: Sequence[float], folder: Path) -> None:
    """Write series as OpenMetrics, one file for each block, and have promtool make blocks of them."""
    parts: dict[int, tuple[int, int]] = {}  # block -> first and last of its times
    for number, at in enumerate(times):
        block = int(at // _BLOCK)
        parts[block] = (parts.get(block, (number, 0))[0], number + 1)
    stamps = [f" {at:.0f}\n" for at in times]
    texts: dict[int, list[str]] = defaultdict(list)
    for name, labels, values in series:
        text = ",".join(f'{key}="{value}"' for key, value in labels)
        for block, (first, last) in parts.items():
            texts[block] += [
                f"{name}{{{text}}} {value}{stamp}"
                for value, stamp in zip(values[first:last], stamps[first:last], strict=True)
                if value is not None
            ]
    files = []
    for block, lines in texts.items():
        if lines:
            files.append(folder / f"{block}.om")
            files[-1].write_text("".join([*lines, "# EOF\n"]), encoding="utf-8")
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda file: _backfill(file, folder / "data"), files))


def _backfill(file: Path, data: Path) -> None:
    command = [needs("promtool"), "tsdb", "create-blocks-from", "openmetrics", "--quiet", str(file), str(data)]
    made = subprocess.run(command, capture_output=True, text=True, check=False)
    assert made.returncode == 0, made.stdout + made.stderr
    file.unlink()


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.fakes.backfilled", description="Serve a written history.")
    parser.add_argument("history", choices=sorted(HISTORIES))
    parser.add_argument("--port", type=int, default=9090)
    parser.add_argument("--now", action="store_true", help="let it end now, not at 2026-01-06T12:00:00Z")
    given = parser.parse_args(arguments)
    history = HISTORIES[given.history]()
    end = time.time() // history.every * history.every if given.now else END
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C, so that nothing stays behind
    with Backfilled(history, end=end, port=given.port) as prometheus, contextlib.suppress(KeyboardInterrupt):
        print(f"http://127.0.0.1:{prometheus.port} has {history.name}, until {end:.0f}", flush=True)
        return prometheus.process.wait()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
