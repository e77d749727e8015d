"""The exporter's part of tests.bench.starts: run inside the booted system, it prints one JSON object and ends.

It is the exporter as `llmhost serve` makes it, in this process, so that the moment of each verdict can be noted.
"""

import argparse
import json
import os
import sys
import time
from array import array
from collections import Counter
from pathlib import Path
from typing import Any

from llmhost.assemble.exporter import Exporter
from llmhost.collect.clock import SystemClock
from llmhost.collect.history_keeper import HistoryKeeper
from llmhost.config.paths import Paths
from llmhost.config.schema import CollectorsConfig, Config, PidNamespace, UnitsConfig
from llmhost.metrics.collector import Exposition, InForce
from llmhost.metrics.exposition import encode
from llmhost.model.history.unit_history import Start, Verdict
from llmhost.model.ids import UnitId

WARM_UP_SECONDS = 3.0  # in which processes are read for the first time, each in full


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--starts", type=int, default=0, help="go on until so many starts")
    parser.add_argument("--scrapes", type=int, default=0, help="and so many scrapes")
    given = parser.parse_args()
    latencies = array("d")  # eight bytes each: what is measured is the exporter's memory
    verdicts: Counter[str] = Counter()
    judged = HistoryKeeper.add_verdict

    def noted(keeper: HistoryKeeper, unit: UnitId, invocation_id: str, verdict: Verdict, **more: Any) -> Start | None:  # noqa: ANN401
        start = judged(keeper, unit, invocation_id, verdict, **more)
        if start is not None and start.main_monotonic is not None:
            latencies.append(time.monotonic() - start.main_monotonic)
            verdicts[verdict] += 1
        return start

    HistoryKeeper.add_verdict = noted  # type: ignore[method-assign, assignment]
    config = Config(
        units=UnitsConfig(patterns=("loop*.service",), discover=False),
        pid_namespace=PidNamespace.TRUST,
        collectors=CollectorsConfig(engine=False, shm=False),
    )
    exporter = Exporter(config, Paths(), clock=SystemClock(), watch=True)
    exporter.start_watching()
    in_force = InForce(config=config, loaded_at=0.0, reload_success=True)
    exposition = Exposition(
        observe=exporter.observe, in_force=lambda: in_force, version="", revision="", python_version=""
    )
    print("ready", flush=True)
    sys.stdin.readline()
    time.sleep(WARM_UP_SECONDS)
    del latencies[:]
    verdicts.clear()
    began, cpu = time.monotonic(), time.process_time()
    scrapes, sizes = 0, []
    while True:
        passed = time.monotonic() - began
        if passed >= given.seconds and len(latencies) >= given.starts and scrapes >= given.scrapes:
            break
        if given.scrapes == 0 or scrapes >= given.scrapes:
            time.sleep(0.2)
        else:
            encode(exposition.metrics(time.monotonic() + 8), accept="")
            scrapes += 1
            if scrapes % (given.scrapes // 20) == 0:
                sizes.append(size())
    seconds, spent = time.monotonic() - began, time.process_time() - cpu
    sizes.append(size())
    ordered = sorted(latencies)
    exporter.close()
    found = {
        "starts": len(ordered),
        "seconds": seconds,
        "cpu_seconds": spent,
        "scrapes": scrapes,
        "verdicts": verdicts,
        "p50_ms": ordered[len(ordered) // 2] * 1000,
        "p99_ms": ordered[len(ordered) * 99 // 100] * 1000,
        "most_ms": ordered[-1] * 1000,
        "sizes": sizes,
    }
    print(json.dumps(found), flush=True)


def size() -> dict[str, float]:
    """Return resident memory in MiB, and open descriptors."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return {
        "rss_mib": pages * os.sysconf("SC_PAGE_SIZE") / (1 << 20),
        "fds": sum(1 for _ in Path("/proc/self/fd").iterdir()),
    }


if __name__ == "__main__":
    main()
