"""A real Prometheus scrapes the real exporter of the incident for a minute, and judges it by the shipped rules."""

import time
from pathlib import Path

from tests.fakes.daemon import Daemon
from tests.fakes.prometheus import Prometheus
from tests.hosts.written import read, standing

ROOT = Path(__file__).parents[2]
MINUTE_SECONDS = 60
CONFIG = """
global:
  scrape_interval: 1s
  scrape_timeout: 1s
  evaluation_interval: 1s
rule_files: [{rules}]
scrape_configs:
- job_name: llmhost
  static_configs: [{{targets: ['127.0.0.1:{port}']}}]
"""


def test_a_minute_of_scrapes_has_no_error_and_drops_no_sample(tmp_path: Path) -> None:
    with standing(read("incident"), tmp_path) as (stands, _):
        env = stands.environment | {"DBUS_SYSTEM_BUS_ADDRESS": stands.bus_address}
        config = tmp_path / "llmhost.yml"
        config.write_text(stands.config_text)
        with Daemon("--path.procfs", str(stands.procfs), config=config, env=env) as daemon:
            text = CONFIG.format(port=daemon.port, rules=ROOT / "alerts" / "llmhost.rules.yml")
            with Prometheus(text) as prometheus:
                prometheus.wait_for("up")  # it takes up to five seconds to take its targets up
                time.sleep(MINUTE_SECONDS)
                scrapes = prometheus.value("count_over_time(up[2m])")
                assert scrapes >= MINUTE_SECONDS - 5
                assert prometheus.value("min_over_time(up[2m])") == 1
                assert prometheus.value("max_over_time(scrape_duration_seconds[2m])") < 1
                assert prometheus.query("scrape_samples_scraped != scrape_samples_post_metric_relabeling") == []
                assert prometheus.value("scrape_samples_scraped") < 800  # the budget of a host of 8 GPUs
                assert prometheus.value("min_over_time(llmhost_collector_success{collector='nvml'}[2m])") == 1
                assert prometheus.value("sum(llmhost_gpu_holder_memory_bytes{kind='leftover'})") == 8 * 93900 << 20
                assert {alert["labels"]["alertname"] for alert in prometheus.api("alerts")["data"]["alerts"]} == {
                    "LlmhostUnitDown",
                    "LlmhostStartWouldBeRefused",
                    "LlmhostMemoryHeldByDownUnit",
                    "LlmhostOrphanEngines",
                    "LlmhostWatchdog",
                }
                rules = [rule for group in prometheus.api("rules")["data"]["groups"] for rule in group["rules"]]
                assert [rule["lastError"] for rule in rules if rule.get("lastError")] == []
                assert all(rule["health"] == "ok" for rule in rules)
                assert "level=error" not in prometheus.log
                assert "level=warn" not in prometheus.log
        assert "bug" not in daemon.log
