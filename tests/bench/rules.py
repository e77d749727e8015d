"""What the rules cost where Prometheus watches a fleet: `make bench`.

A real Prometheus scrapes 1,000 targets, each a page of the exporter of a host with two units and eight GPUs in the
middle of the incident, and evaluates the rules as they are. Told are its own figures of the groups' last evaluation,
the series that it holds, and those that the recording rules add. Beside them stands what it costs on the same series
to evaluate the two public rules on restarts, which is the least that anybody has.
"""

import argparse
import http.server
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import yaml
from tests.fakes.prometheus import Prometheus

REPOSITORY = Path(__file__).parents[2]
ALERTS = REPOSITORY / "alerts"
PAGE = REPOSITORY / "tests/hosts/incident/expected/metrics.prom"
PUBLIC = """
groups:
  - name: public
    interval: 30s
    rules:
      - {alert: A, expr: 'increase(llmhost_unit_nrestarts[5m]) > 2', for: 15m}
      - {alert: B, expr: 'llmhost_unit_active_state{state="failed"} == 1', for: 5m}
"""


@contextmanager
def served(page: bytes) -> Iterator[int]:
    """Answer every GET with the page, on a port of loopback."""

    class Handler(http.server.BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_GET(self) -> None:
            self.send_response(http.HTTPStatus.OK)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(page)))
            self.end_headers()
            self.wfile.write(page)

        def log_message(self, *_arguments: object) -> None:
            """Say nothing: there are thousands."""

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()


def configured(port: int, hosts: int, public: Path) -> str:
    """Have each target's path, and so its URL, be its own; `instance` says which host it stands for."""
    groups = [
        {"targets": [f"127.0.0.1:{port}"], "labels": {"__metrics_path__": f"/{host}", "instance": f"h{host}:10061"}}
        for host in range(hosts)
    ]
    whole = {
        "global": {"scrape_interval": "30s", "evaluation_interval": "30s", "external_labels": {"cluster": "c"}},
        "rule_files": [*(str(path) for path in sorted(ALERTS.glob("*.rules.yml"))), str(public)],
        "scrape_configs": [{"job_name": "llmhost", "static_configs": groups}],
    }
    return yaml.safe_dump(whole)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.bench.rules", description="What the rules cost in a fleet.")
    parser.add_argument("--hosts", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=180.0, help="how long Prometheus scrapes; default: 180")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        public = Path(folder) / "public.rules.yml"
        public.write_text(PUBLIC)
        with served(PAGE.read_bytes()) as port, Prometheus(configured(port, given.hosts, public)) as prometheus:
            time.sleep(given.seconds)
            told(prometheus, given.hosts)


def told(prometheus: Prometheus, hosts: int) -> None:
    out = sys.stdout.write
    up = len(prometheus.query('up{job="llmhost"} == 1'))
    series = prometheus.value('sum(scrape_samples_post_metric_relabeling{job="llmhost"})')
    out(f"{hosts} hosts, {up} scraped, {series:.0f} series of theirs\n")
    groups = prometheus.api("rules")["data"]["groups"]
    least = sum(group["evaluationTime"] for group in groups if group["name"] == "public")
    ours = sum(group["evaluationTime"] for group in groups if group["name"] != "public")
    for group in sorted(groups, key=lambda one: -one["evaluationTime"]):
        out(f"  {group['name']:<28} {len(group['rules']):>3} rules {1000 * group['evaluationTime']:8.1f} ms\n")
    recorded = [rule["name"] for group in groups for rule in group["rules"] if rule["type"] == "recording"]
    added = sum(len(prometheus.query(f"{{__name__={name!r}}}".replace("'", '"'))) for name in recorded)
    out(f"{len(recorded)} recording rules add {added} series, {added / hosts:.1f} a host\n")
    out(f"all of ours {ours:.2f} s of each 30 s; {ours / least:.1f} times the two public rules\n")
    slow = [
        (rule["evaluationTime"], rule["name"])
        for group in groups
        for rule in group["rules"]
        if group["name"] != "public"
    ]
    for seconds, name in sorted(slow, reverse=True)[:5]:
        out(f"  {1000 * seconds:8.1f} ms {name}\n")


if __name__ == "__main__":
    main()
