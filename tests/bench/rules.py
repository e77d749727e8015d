"""The cost of the rules where Prometheus watches a fleet: `make bench`.

A real Prometheus scrapes 1,000 targets, each a page of the exporter of a host with two units and eight GPUs in the
middle of the incident, and evaluates the rules as they are. Printed are its own figures of the groups' last evaluation,
the series that it holds, and those that the recording rules add; beside them the cost of the two public rules on
restarts on the same series, the least that anybody has. With --healthy all hosts serve.

Three minutes are less than the hour that some rules look back over. Their cost with all of it is measured on a smaller
fleet with a written history (tests/grafana/histories/fleet.py): each rule's least time of three.
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
from tests.fakes.backfilled import Backfilled
from tests.fakes.prometheus import Prometheus
from tests.grafana.histories.fleet import fleet

REPOSITORY = Path(__file__).parents[2]
ALERTS = REPOSITORY / "alerts"
HOSTS = REPOSITORY / "tests/hosts"
INCIDENT, HEALTHY = (HOSTS / name / "expected/metrics.prom" for name in ("incident", "engine-vllm-tp1"))
AT_SECONDS = 20_000  # of the written fleet: three units loop, memory is stuck on two hosts, one cannot be seen
PUBLIC = """
groups:
  - name: public
    interval: 30s
    rules:
      - {alert: A, expr: 'increase(llmhost_unit_nrestarts[5m]) > 2', for: 15m}
      - {alert: B, expr: 'llmhost_unit_active_state{state="failed"} == 1', for: 5m}
"""


class Server(http.server.ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, request: object, client_address: object) -> None:
        """Say nothing: Prometheus is killed in the end."""


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

    server = Server(("127.0.0.1", 0), Handler)
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
    parser.add_argument("--healthy", action="store_true", help="all hosts serve; else all are in the incident")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        public = Path(folder) / "public.rules.yml"
        public.write_text(PUBLIC)
        page = (HEALTHY if given.healthy else INCIDENT).read_bytes()
        with served(page) as port, Prometheus(configured(port, given.hosts, public)) as prometheus:
            time.sleep(given.seconds)
            print_costs(prometheus, given.hosts)
    print_costs_of_an_hour()


def print_costs(prometheus: Prometheus, hosts: int) -> None:
    out = sys.stdout.write
    up = len(prometheus.query('up{job="llmhost"} == 1'))
    series = prometheus.value('sum(scrape_samples_post_metric_relabeling{job="llmhost"})')
    out(f"{hosts} hosts, {up} scraped, {series:.0f} series of theirs\n")
    groups = prometheus.api("rules")["data"]["groups"]
    least = sum(group["evaluationTime"] for group in groups if group["name"] == "public")
    ours = sum(group["evaluationTime"] for group in groups if group["name"] != "public")
    for group in sorted(groups, key=lambda group: -group["evaluationTime"]):
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


def print_costs_of_an_hour() -> None:
    history = fleet()
    seconds: dict[str, float] = {}
    with Backfilled(history) as prometheus:
        hosts = len(prometheus.at(AT_SECONDS, 'up{job="llmhost"}'))
        for path in sorted(ALERTS.glob("*.rules.yml")):
            for group in yaml.safe_load(path.read_text())["groups"]:
                for number, rule in enumerate(group["rules"]):
                    name = f"{rule.get('alert') or rule['record']} ({group['name']}, {number + 1})"
                    seconds[name] = min(_timed(prometheus, rule["expr"]) for _ in range(3))
    whole = sum(seconds.values())
    sys.stdout.write(
        f"{hosts} hosts with an hour of history, scraped each {history.every} s: {1000 * whole:.0f} ms, "
        f"{1000 * whole / hosts:.2f} ms a host, for all rules\n"
    )
    for name in sorted(seconds, key=lambda name: -seconds[name])[:5]:
        sys.stdout.write(f"  {1000 * seconds[name]:8.1f} ms {name}\n")


def _timed(prometheus: Backfilled, expression: str) -> float:
    began = time.monotonic()
    prometheus.at(AT_SECONDS, expression)
    return time.monotonic() - began


if __name__ == "__main__":
    main()
