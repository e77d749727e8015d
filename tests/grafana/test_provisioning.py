"""Grafana's provisioning and the composition that shows it, as far as can be checked without running either.

Compose itself has read grafana/compose.yml (v2.40.3, `config`), but is not here; nor are the images.
"""

import re
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.needs import needs
from tests.grafana.boards import BOARDS, GRAFANA

from llmhost.config.schema import WebConfig

ALERTS = GRAFANA.parent / "alerts"
Yaml = dict[str, Any]


def read(path: Path) -> Yaml:
    found: Yaml = yaml.safe_load(path.read_text(encoding="utf-8"))
    return found


COMPOSE = read(GRAFANA / "compose.yml")
SERVICES: Mapping[str, Yaml] = COMPOSE["services"]
PROVISIONING = GRAFANA / "provisioning"
(DATASOURCE,) = read(PROVISIONING / "datasources/llmhost.yml")["datasources"]
(PROVIDER,) = read(PROVISIONING / "dashboards/llmhost.yml")["providers"]

# Keys that Grafana's documentation and the Compose specification have; a new one is looked up there, then added.
KNOWN: Mapping[str, set[str]] = {
    "datasources": {"apiVersion", "prune", "deleteDatasources", "datasources"},
    "datasource": {"name", "uid", "type", "access", "orgId", "url", "isDefault", "editable", "jsonData", "version"},
    "jsonData": {"httpMethod", "timeInterval", "manageAlerts", "queryTimeout", "prometheusType", "prometheusVersion"},
    "providers": {"apiVersion", "providers"},
    "provider": {
        *("name", "orgId", "type", "folder", "folderUid", "disableDeletion", "allowUiUpdates"),
        *("updateIntervalSeconds", "options"),
    },
    "options": {"path", "foldersFromFilesStructure"},
    "compose": {"name", "services", "networks", "volumes", "configs", "secrets"},
    "service": {
        *("image", "command", "environment", "ports", "extra_hosts", "configs", "volumes", "depends_on", "healthcheck"),
        *("cap_drop", "security_opt", "restart", "read_only", "user", "tmpfs"),
    },
    "healthcheck": {"test", "interval", "timeout", "retries", "start_period"},
}


def mappings() -> Iterator[tuple[str, Yaml]]:
    yield "datasources", read(PROVISIONING / "datasources/llmhost.yml")
    yield "datasource", DATASOURCE
    yield "jsonData", DATASOURCE["jsonData"]
    yield "providers", read(PROVISIONING / "dashboards/llmhost.yml")
    yield "provider", PROVIDER
    yield "options", PROVIDER["options"]
    yield "compose", COMPOSE
    for service in SERVICES.values():
        yield "service", service
        yield "healthcheck", service["healthcheck"]


def test_every_key_is_one_that_is_read() -> None:
    """Both ignore a key that they do not know, or say so only when they run."""
    assert [(what, key) for what, mapping in mappings() for key in mapping if key not in KNOWN[what]] == []


def test_grafana_is_provisioned_with_a_data_source_and_dashboards_alone() -> None:
    files = {str(path.relative_to(PROVISIONING)) for path in PROVISIONING.rglob("*") if path.is_file()}
    assert files == {"datasources/llmhost.yml", "dashboards/llmhost.yml"}


def test_the_data_source_is_what_the_dashboards_are_made_for() -> None:
    scrape = read(ALERTS / "prometheus.example.yml")["global"]["scrape_interval"]
    assert DATASOURCE["type"] == "prometheus"
    assert DATASOURCE["uid"] == "llmhost"
    assert DATASOURCE["editable"] is False
    assert DATASOURCE["jsonData"] == {"httpMethod": "POST", "timeInterval": scrape, "manageAlerts": False}
    assert "isDefault" not in DATASOURCE, "two defaults are an error, and yours may be another"


def test_the_dashboards_stay_what_the_files_say() -> None:
    assert PROVIDER["type"] == "file"
    assert PROVIDER["folder"] == "llmhost"
    assert PROVIDER["allowUiUpdates"] is False
    assert (
        10 < PROVIDER["updateIntervalSeconds"] <= 600
    )  # from 10 s down Grafana watches files, which mounts may not tell


def by_default(text: str) -> str:
    """Put in what Compose would where nothing is set."""
    return re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text)


def mounts(service: Yaml) -> Iterator[tuple[str, str, bool]]:
    """Give what is mounted, where, and whether it can only be read there."""
    for volume in service["volumes"]:
        source, target, *mode = by_default(volume).split(":")
        yield source, target, mode == ["ro"]


each_service = pytest.mark.parametrize("service", SERVICES.values(), ids=SERVICES)


@each_service
def test_what_is_mounted_is_there_and_cannot_be_written(service: Yaml) -> None:
    for source, _, read_only in mounts(service):
        if source.startswith("."):
            assert (GRAFANA / source).exists(), source
            assert read_only, source
        else:
            assert source in COMPOSE["volumes"], source
            assert not read_only


@each_service
def test_a_service_has_a_fixed_image_a_check_of_its_health_and_no_privileges(service: Yaml) -> None:
    assert re.fullmatch(r"(prom/prometheus|prom/alertmanager|grafana/grafana):v?\d+\.\d+\.\d+", service["image"])
    assert service["cap_drop"] == ["ALL"]
    assert service["security_opt"] == ["no-new-privileges:true"]
    (port,) = service["ports"]
    assert re.fullmatch(r"127\.0\.0\.1:(\d+):\1", port)
    assert service["healthcheck"]["test"][:5] == ["CMD", "wget", "-q", "-O", "/dev/null"]
    assert service["healthcheck"]["test"][5].startswith(f"http://127.0.0.1:{port.split(':')[2]}/")
    assert not {"privileged", "network_mode", "pid", "ipc", "cap_add", "devices"} & service.keys()


def test_grafana_finds_what_it_is_provisioned_with() -> None:
    grafana = SERVICES["grafana"]
    at = {target: source for source, target, _ in mounts(grafana)}
    assert at["/etc/grafana/provisioning"] == "./provisioning"
    dashboards = GRAFANA / at[PROVIDER["options"]["path"]]
    assert {path.stem for path in dashboards.rglob("*.json")} == set(BOARDS)
    home = grafana["environment"]["GF_DASHBOARDS_DEFAULT_HOME_DASHBOARD_PATH"]
    assert (dashboards / Path(home).relative_to(PROVIDER["options"]["path"])).is_file()


def test_the_variables_of_the_provisioning_are_set() -> None:
    """Grafana knows no defaults for them: one that is not set is empty."""
    used = {name for path in PROVISIONING.rglob("*.yml") for name in re.findall(r"\$\{(\w+)\}", values_of(path))}
    assert used == {"LLMHOST_PROMETHEUS_URL"}
    environment = SERVICES["grafana"]["environment"]
    assert used <= environment.keys()
    name, port = re.fullmatch(r"http://(\w+):(\d+)", environment["LLMHOST_PROMETHEUS_URL"]).groups()  # type: ignore[union-attr]
    assert SERVICES[name]["ports"] == [f"127.0.0.1:{port}:{port}"]
    assert SERVICES["grafana"]["depends_on"] == {name: {"condition": "service_healthy"}}


def values_of(path: Path) -> str:
    return yaml.safe_dump(read(path))  # without comments


def test_no_user_can_log_in_and_change_it() -> None:
    environment = SERVICES["grafana"]["environment"]
    assert environment["GF_AUTH_ANONYMOUS_ORG_ROLE"] == "Viewer"
    assert environment["GF_AUTH_DISABLE_LOGIN_FORM"] == "true"
    assert environment["GF_AUTH_BASIC_ENABLED"] == "false"
    assert [name for name in environment if "PASSWORD" in name] == []


def prometheus_config() -> Yaml:
    found: Yaml = yaml.safe_load(by_default(COMPOSE["configs"]["prometheus"]["content"]))
    return found


def test_prometheus_is_set_up_as_in_the_example_but_for_addresses() -> None:
    config, example = prometheus_config(), read(ALERTS / "prometheus.example.yml")
    (exporter,) = config["scrape_configs"][0]["static_configs"][0]["targets"]
    (alertmanager,) = config["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"]
    host, port = exporter.split(":")
    assert SERVICES["prometheus"]["extra_hosts"] == [f"{host}:host-gateway"]
    assert f":{port}" == WebConfig().listen
    assert alertmanager == "alertmanager:9093"
    example["scrape_configs"][0]["static_configs"][0]["targets"] = [exporter]
    example["alerting"]["alertmanagers"][0]["static_configs"][0]["targets"] = [alertmanager]
    assert config == example


def test_promtool_takes_what_prometheus_gets(tmp_path: Path) -> None:
    """With the rules beside it, as they are mounted."""
    prometheus = SERVICES["prometheus"]
    (config,) = prometheus["configs"]
    assert f"--config.file={config['target']}" in prometheus["command"]
    for source, target, read_only in mounts(prometheus):
        if read_only:
            assert Path(target).parent == Path(config["target"]).parent
            (tmp_path / Path(target).name).write_bytes((GRAFANA / source).read_bytes())
    file = tmp_path / "prometheus.yml"
    file.write_text(yaml.safe_dump(prometheus_config()), encoding="utf-8")
    ran = subprocess.run([needs("promtool"), "check", "config", file], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert len(re.findall(r"SUCCESS: [1-9]\d* rules found", ran.stdout)) == len(prometheus_config()["rule_files"])


def test_amtool_takes_what_alertmanager_gets() -> None:
    alertmanager = SERVICES["alertmanager"]
    at = {target: source for source, target, _ in mounts(alertmanager)}
    (config,) = (option.split("=", 1)[1] for option in alertmanager["command"] if option.startswith("--config.file="))
    checked = subprocess.run(
        [needs("amtool"), "check-config", GRAFANA / at[config]], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stdout + checked.stderr
