"""The example for Alertmanager, held to amtool and to a real Alertmanager: its receivers and inhibitions."""

import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml
from tests.fakes.alertmanager import EXAMPLE, Alertmanager, example
from tests.fakes.needs import needs
from tests.fakes.webhooks import Webhooks

RULES = EXAMPLE.parent / "llmhost.rules.yml"
RECEIVER = {"critical": "pager", "warning": "chat", "info": "digest"}
# Of the reader's own, not of llmhost.rules.yml.
FOREIGN = {"HostDown", "NodeDown"}
# Read by the receivers of 0.25 where the value itself would be a secret.
SECRETS = {
    "routing_key",
    "service_key",
    "slack_api_url",
    "smtp_auth_password",
    "password",
    "credentials",
    "bearer_token",
}

PAGES = {
    "LlmhostRestartLoop",
    "LlmhostRestartedWhileMemoryResident",
    "LlmhostUnitDown",
    "LlmhostEngineHung",
    "LlmhostEngineDown",
    "LlmhostEngineNeverReady",
    "LlmhostGpuLost",
    "LlmhostExporterDown",
    "LlmhostExporterAbsent",
}

HOST = {"cluster": "c", "job": "llmhost", "instance": "gpu-1:10061", "host": "gpu-1"}
OTHER_HOST = {"cluster": "c", "job": "llmhost", "instance": "gpu-2:10061", "host": "gpu-2"}
UNIT = {"unit": "vllm-a.service", "manager": "system"}
OTHER_UNIT = {"unit": "vllm-b.service", "manager": "system"}
GPU = {"gpu": "0", "uuid": "GPU-0"}
OTHER_GPU = {"gpu": "1", "uuid": "GPU-1"}


def severity(name: str) -> str:
    return "critical" if name in PAGES else "warning"


def alert(name: str, *labels: Mapping[str, str], **more: str) -> dict[str, str]:
    """Make an alert of llmhost's on the host, with these labels; an empty one is none."""
    found = {"alertname": f"Llmhost{name}", "severity": severity(f"Llmhost{name}"), **HOST}
    for some in (*labels, more):
        found |= some
    return {key: value for key, value in found.items() if value}


def test_amtool_finds_no_fault_in_the_example() -> None:
    done = subprocess.run([needs("amtool"), "check-config", EXAMPLE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "SUCCESS" in done.stdout


def alerts_of(path: Path) -> list[tuple[str, str]]:
    groups = yaml.safe_load(path.read_text())["groups"]
    return sorted({(rule["alert"], rule["labels"]["severity"]) for group in groups for rule in group["rules"]})


def route_of(**labels: str) -> str:
    done = subprocess.run(
        [
            needs("amtool"),
            "config",
            "routes",
            "test",
            "--config.file",
            EXAMPLE,
            *(f"{k}={v}" for k, v in labels.items()),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.strip()


def test_each_alert_that_ships_goes_to_whom_its_severity_says() -> None:
    shipped = alerts_of(RULES)
    assert shipped
    for name, level in shipped:
        wanted = "dead-man" if name == "LlmhostWatchdog" else RECEIVER[level]
        found = route_of(alertname=name, severity=level, cluster="c", job="llmhost", instance="a:10061")
        assert found == wanted, name


def test_what_is_not_of_llmhost_s_goes_to_the_default() -> None:
    assert route_of(alertname="NodeFilesystemAlmostOutOfSpace", severity="critical") == "chat"


def _entries(node: Any) -> Iterator[tuple[str, Any]]:  # noqa: ANN401 - YAML
    """Give all keys with their values, wherever they are."""
    for name, value in node.items() if isinstance(node, dict) else ():
        yield name, value
        yield from _entries(value)
    for value in node if isinstance(node, list) else ():
        yield from _entries(value)


def test_the_example_names_no_alert_that_is_not_there() -> None:
    found = _entries(yaml.safe_load(EXAMPLE.read_text()))
    matchers = [matcher for key, value in found if key.endswith("matchers") for matcher in value]
    values = [matcher.split('"')[1] for matcher in matchers if matcher.startswith("alertname")]
    named = {name for value in values for name in value.split("|")} - {"Llmhost.+"} - FOREIGN
    assert named - {name for name, _ in alerts_of(RULES)} == set()


def test_no_secret_stands_in_the_example() -> None:
    found = {key for key, _ in _entries(yaml.safe_load(EXAMPLE.read_text()))}
    assert {"routing_key_file", "slack_api_url_file", "credentials_file"} <= found
    assert found & SECRETS == set()


WAITS = {"group_wait": "50ms", "group_interval": "100ms", "repeat_interval": "1h"}


@pytest.fixture
def hooks() -> Iterator[Webhooks]:
    with Webhooks() as hooks:
        yield hooks


@pytest.fixture
def alertmanager(hooks: Webhooks) -> Iterator[Alertmanager]:
    with Alertmanager(example(hooks.url, lambda route: route.update(WAITS))) as alertmanager:
        yield alertmanager


RESIDENT, LOOP, DOWN = "RestartedWhileMemoryResident", "RestartLoop", "UnitDown"
NODE_DOWN = {"alertname": "HostDown", "cluster": "c", "job": "node", "instance": "gpu-1:9100", "host": "gpu-1"}

# What fires first, what fires with it, and whether that is kept quiet.
INHIBITION: list[tuple[str, dict[str, str], dict[str, str], bool]] = [
    *(
        (f"{cause} quietens {symptom}", alert(cause, UNIT), alert(symptom, UNIT, memory="short"), True)
        for cause, symptoms in (
            (RESIDENT, (LOOP, DOWN, "EngineDown", "EngineNeverReady", "EngineHung")),
            (LOOP, (DOWN, "EngineDown", "EngineNeverReady", "EngineHung")),
            (DOWN, ("EngineDown", "EngineNeverReady", "EngineHung")),
            ("EngineNeverReady", ("EngineDown",)),
            ("EngineHung", ("EngineDown",)),
        )
        for symptom in symptoms
    ),
    ("no loop that memory does not explain", alert(RESIDENT, UNIT), alert(LOOP, UNIT, memory="enough"), False),
    ("or may not explain", alert(RESIDENT, UNIT), alert(LOOP, UNIT, memory="unknown"), False),
    ("a symptom quietens no cause", alert(LOOP, UNIT), alert(RESIDENT, UNIT), False),
    ("that a unit is down quietens no loop", alert(DOWN, UNIT), alert(LOOP, UNIT), False),
    ("a cause quietens nothing of another unit", alert(RESIDENT, UNIT), alert(LOOP, OTHER_UNIT), False),
    ("nor of the unit on another host", alert(RESIDENT, UNIT), alert(LOOP, UNIT, OTHER_HOST), False),
    ("nor in another cluster", alert(RESIDENT, UNIT), alert(LOOP, UNIT, cluster="d"), False),
    ("nor of another manager", alert(RESIDENT, UNIT), alert(LOOP, UNIT, manager="user@1000"), False),
    ("nor what is about no unit", alert(RESIDENT, UNIT), alert("GpuLost", GPU), False),
    ("one of two GPUs that are lost quietens no other", alert("GpuLost", GPU), alert("GpuLost", OTHER_GPU), False),
    ("a page of a unit quietens its tickets", alert(LOOP, UNIT), alert("OomKilled", UNIT), True),
    ("but none of another unit", alert(LOOP, UNIT), alert("OomKilled", OTHER_UNIT), False),
    ("a ticket quietens no page", alert("OomKilled", UNIT), alert(LOOP, UNIT), False),
    ("a ticket quietens no ticket", alert("OomKilled", UNIT), alert("StuckInStartPre", UNIT), False),
    ("a page of a GPU quietens its tickets", alert("GpuLost", GPU), alert("XidFatal", GPU), True),
    ("but none of another GPU", alert("GpuLost", GPU), alert("XidFatal", OTHER_GPU), False),
    ("memory in the way quietens who else has some", alert(RESIDENT, UNIT), alert("MemoryHeldByNobody"), True),
    ("but not of another host", alert(RESIDENT, UNIT), alert("MemoryHeldByNobody", OTHER_HOST), False),
    ("a page of a unit quietens no ticket of the host", alert(LOOP, UNIT), alert("ShmFilling"), False),
    ("a page of the host quietens no ticket of the host", alert("GpuLost"), alert("ShmFilling"), False),
    ("a lost exporter quietens what is of its host", alert("ExporterDown"), alert(RESIDENT, UNIT), True),
    ("and all else of it", alert("ExporterDown"), alert("ShmFilling"), True),
    ("but nothing of another host", alert("ExporterDown"), alert(LOOP, UNIT, OTHER_HOST), False),
    ("nor another exporter's", alert("ExporterDown"), alert("ExporterDown", OTHER_HOST), False),
    ("nor what has no instance", alert("ExporterDown"), alert("ExporterAbsent", instance="", host=""), False),
    ("nor does one that has no instance", alert("ExporterDown", instance=""), alert("Watchdog", instance=""), False),
    ("a host that is down quietens its exporter", NODE_DOWN, alert("ExporterDown"), True),
    ("and its units", NODE_DOWN, alert(RESIDENT, UNIT), True),
    ("but no other host's", NODE_DOWN, alert("ExporterDown", OTHER_HOST), False),
    ("nothing without a host", NODE_DOWN | {"host": ""}, alert("ExporterDown", host=""), False),
    ("nothing that is not llmhost's", NODE_DOWN, HOST | {"alertname": "Mine"}, False),
    ("two that share nothing", alert("ExporterAbsent", instance="", host=""), alert("Watchdog", instance=""), False),
]


def _in_a_world_of_its_own(number: int, labels: Mapping[str, str]) -> dict[str, str]:
    """Give the alert in a cluster that no other case has: all cases then stand at once."""
    return {key: f"{value}{number}" if key == "cluster" else value for key, value in labels.items() if value}


def until_it_has_read_what_was_posted(alertmanager: Alertmanager) -> None:
    """Wait until of two more alerts the one quietens the other: it reads all in the order in which they are posted."""
    last = [alert(name, UNIT, cluster="last") for name in (RESIDENT, DOWN)]
    alertmanager.post(last)
    until = time.monotonic() + 120
    while not alertmanager.quietened()[frozenset(last[1].items())]:
        assert time.monotonic() < until


def test_a_cause_quietens_its_symptoms_and_nothing_else(alertmanager: Alertmanager) -> None:
    cases = [
        (name, _in_a_world_of_its_own(number, first), _in_a_world_of_its_own(number, second), quiet)
        for number, (name, first, second, quiet) in enumerate(INHIBITION)
    ]
    alertmanager.post([first for _, first, _, _ in cases])
    until_it_has_read_what_was_posted(alertmanager)
    alertmanager.post([second for _, _, second, _ in cases])
    found = alertmanager.quietened()
    assert {frozenset(labels.items()) for _, first, second, _ in cases for labels in (first, second)} <= set(found)
    wrong = [name for name, _, second, quiet in cases if found[frozenset(second.items())] is not quiet]
    assert wrong == []
    sources = [name for name, first, _, quiet in cases if quiet and found[frozenset(first.items())]]
    assert sources == [], "what quietens is told of itself"


def test_no_alert_quietens_itself(alertmanager: Alertmanager) -> None:
    alone = [
        _in_a_world_of_its_own(number, alert(name.removeprefix("Llmhost"), UNIT, GPU, severity=level))
        for number, (name, level) in enumerate(alerts_of(RULES))
    ]
    alertmanager.post(alone)
    until_it_has_read_what_was_posted(alertmanager)
    assert {quiet for labels, quiet in alertmanager.quietened().items() if dict(labels)["cluster"] != "last"} == {False}


def test_a_unit_of_a_host_is_one_page_and_a_lost_network_is_one(alertmanager: Alertmanager, hooks: Webhooks) -> None:
    hosts = [{**HOST, "instance": f"gpu-{number}:10061", "host": f"gpu-{number}"} for number in range(3)]
    alertmanager.post([alert("ExporterDown", host) for host in hosts])
    alertmanager.post([alert("UnitDown", host, UNIT, cluster="d") for host in hosts])
    alertmanager.post([alert("DriverMismatch", host, cluster="e") for host in hosts])
    hooks.until(lambda: len(hooks.sent("pager")) >= 4 and hooks.sent("chat"))
    assert sorted(page.names() for page in hooks.sent("pager")) == [
        ["LlmhostExporterDown"] * 3,
        *([["LlmhostUnitDown"]] * 3),
    ]
    assert [message.names() for message in hooks.sent("chat")] == [["LlmhostDriverMismatch"] * 3]


def test_the_dead_man_is_notified_at_once_and_no_other_receiver(alertmanager: Alertmanager, hooks: Webhooks) -> None:
    alertmanager.post([alert("Watchdog", instance="", host="", severity="info")])
    hooks.until(lambda: hooks.sent("dead-man"))
    assert hooks.sent("digest") == []
