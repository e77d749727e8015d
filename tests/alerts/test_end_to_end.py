"""A host, its monitoring, and the notifications: real systemd, exporter, Prometheus, Alertmanager, in three minutes.

Each unit has one thing done to it, all at the same time. Rules and routes are those that ship, 30 times shorter: a loop
that restarts each 4 s stands for one of two minutes, and a scrape each second for one each half minute.
"""

import re
import time
from collections.abc import Iterator
from dataclasses import dataclass

import pytest
from tests.fakes.booted import Booted, needs_boot
from tests.fakes.gpu_host import GpuHost
from tests.fakes.monitoring import Monitoring, Pace
from tests.fakes.webhooks import Alert, Notification

SHORTER = 30
READY_SECONDS = 20.0  # policy.ready
OUTLIVES_SECONDS = 20.0
HOST = "gpu-1"
INSTANCE = f"{HOST}:10061"
# Each unit's GPUs, and its page.
UNITS = {
    "vllm-incident": ("0,1", "LlmhostRestartedWhileMemoryResident"),
    "vllm-broken": ("2", "LlmhostRestartLoop"),
    "vllm-left": ("3", "LlmhostUnitDown"),
    "vllm-hung": ("4", "LlmhostEngineHung"),
    "vllm-closed": ("5", "LlmhostEngineDown"),
    "vllm-slow": ("6", "LlmhostEngineNeverReady"),
    "vllm-restarted": ("7", None),
    "vllm-stopped": ("8", None),
}
PAGED = {name: page for name, (_, page) in UNITS.items() if page is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    host: GpuHost
    monitoring: Monitoring

    def pager(self, unit: str) -> list[Notification]:
        return self.monitoring.hooks.sent("pager", unit=f"{unit}.service")

    def messages(self, unit: str) -> list[tuple[str, list[str]]]:
        """Return the pager's messages about the unit: the status of each, and the alerts that fire or have ended.

        Alerts that were inhibited until the end are among those that have ended; they are left out.
        """
        fired = {name for page in self.pager(unit) for name in page.names("firing")}
        return [(page.status, [name for name in page.names(page.status) if name in fired]) for page in self.pager(unit)]

    def quiet(self) -> set[tuple[str, str]]:
        """Return unit and name of each alert that fires and is inhibited by another."""
        found = [dict(labels) for labels, quiet in self.monitoring.alertmanager.quietened().items() if quiet]
        return {(labels.get("unit", ""), labels["alertname"]) for labels in found}

    def page(self, unit: str) -> Alert:
        (alert,) = self.pager(unit)[0].alerts
        return alert


@pytest.fixture(scope="module")
def scene() -> Iterator[Scene]:
    needs_boot()
    with Booted() as booted, GpuHost(booted, gpus=9, ready_seconds=READY_SECONDS) as host:
        for name, (gpus, _) in UNITS.items():
            lingers = OUTLIVES_SECONDS if name == "vllm-incident" else 0.0
            host.unit(name, gpus, loads=2.0, lingers=lingers, restart_sec=4.0)
        host.ready(*UNITS)
        host.tell("vllm-slow", "slow")
        with Monitoring({HOST: host.exporter.port}, Pace(shorter=SHORTER)) as monitoring:
            monitoring.prometheus.wait_for("llmhost_unit_info")
            host.start(*UNITS)
            monitoring.prometheus.wait_for(f"count(llmhost_engine_up == 1) == {len(UNITS) - 1}")
            yield Scene(host=host, monitoring=monitoring)


def test_each_cause_is_one_page_and_its_end_another_and_the_normal_pages_nobody(scene: Scene) -> None:
    host, hooks = scene.host, scene.monitoring.hooks
    time.sleep(3)  # some scrapes in which all is well

    # All goes wrong at once.
    host.tell("vllm-broken", "broken")
    host.tell("vllm-hung", "hang")
    host.tell("vllm-closed", "closed")
    for name, what in (("vllm-incident", "fail"), ("vllm-broken", "fail"), ("vllm-left", "leave")):
        host.tell(name, what)
    began = time.monotonic()
    # And two things that are normal, meanwhile.
    host.booted.systemctl("restart", "vllm-restarted.service")
    host.booted.systemctl("stop", "vllm-stopped.service")

    # Symptoms fire, and are kept quiet.
    hooks.until(lambda: scene.pager("vllm-incident"), 15)
    incident_seconds = time.monotonic() - began
    hooks.until(lambda: ("vllm-incident.service", "LlmhostRestartLoop") in scene.quiet(), 15)
    hooks.until(lambda: all(scene.pager(name) for name in PAGED), 60)
    # The ticket of a unit for which somebody is paged, which is of one restart more than the page.
    hooks.until(lambda: ("vllm-broken.service", "LlmhostEndlessLoop") in scene.quiet(), 30)

    # Somebody comes, and mends what does not mend itself.
    host.untell("vllm-broken", "broken")
    host.untell("vllm-hung", "hang")
    host.untell("vllm-slow", "slow")
    host.untell("vllm-closed", "closed")
    host.booted.systemctl("restart", "vllm-closed.service")
    host.start("vllm-left")
    hooks.until(lambda: all(scene.pager(name)[-1].status == "resolved" for name in PAGED), 120)

    # One page for each, with its end, and none for what is normal.
    assert {name: scene.messages(name) for name in UNITS} == {
        name: [("firing", [page]), ("resolved", [page])] if page else [] for name, (_, page) in UNITS.items()
    }
    assert len(hooks.sent("pager")) == 2 * len(PAGED), "and for nothing else"
    assert incident_seconds < 4 + 5, "one turn of the loop, and what passes from a start to a page"
    log = host.exporter.log
    assert log.count("unit=vllm-incident.service attempt=2 trigger=auto verdict=resident") == 1


def test_a_planned_restart_soon_after_an_incident_pages_nobody(scene: Scene) -> None:
    """Within the hour, here two minutes, in which the rules count what went wrong before."""
    before = len(scene.monitoring.pages())
    units = [f"{name}.service" for name in PAGED]
    scene.host.booted.systemctl("restart", *units)
    scene.monitoring.prometheus.wait_for(f"count(llmhost_engine_up == 1) == {len(UNITS) - 1}")
    time.sleep(12)  # in which a rule that goes by events would fire, and be sent on: no longer than group_interval
    assert [page.names() for page in scene.monitoring.pages()[before:]] == []


def test_a_page_says_what_where_and_what_to_do_next(scene: Scene) -> None:
    for name, alertname in PAGED.items():
        page = scene.page(name)
        assert (
            dict(page.labels).items()
            >= {
                "alertname": alertname,
                "severity": "critical",
                "cluster": "example",
                "job": "llmhost",
                "instance": INSTANCE,
                "host": HOST,
                "unit": f"{name}.service",
                "manager": "system",
            }.items()
        )
        assert page.annotations["summary"]
        description = page.annotations["description"]
        assert f"{name}.service on {INSTANCE}" in description
        assert " Next: `" in description
        assert "  " not in description
        assert page.annotations["runbook_url"].endswith(f"alerts/README.md#{alertname.lower()}")
    description = scene.page("vllm-incident").annotations["description"]
    assert re.search(r" 168\.8GiB gone\b.* GPU\D+0\D+1\b", description), description
    description = scene.page("vllm-left").annotations["description"]
    assert "dead, result success, exit status 0" in description


def test_tickets_are_of_what_no_page_has_reported(scene: Scene) -> None:
    messages = scene.monitoring.hooks.sent("chat")
    tickets = {(alert.name, alert.labels.get("unit", "")) for message in messages for alert in message.alerts}
    assert tickets <= {("LlmhostEndlessLoop", f"{name}.service") for name in ("vllm-incident", "vllm-broken")}


def test_an_exporter_that_goes_is_one_page_and_takes_all_others_of_its_host_with_it(scene: Scene) -> None:
    hooks = scene.monitoring.hooks
    before = len(scene.monitoring.pages())
    scene.host.exporter.kill()
    hooks.until(lambda: hooks.sent("pager", alertname="LlmhostExporterDown"), 45)
    (page,) = scene.monitoring.pages()[before:]
    assert page.names() == ["LlmhostExporterDown"]
    assert page.alerts[0].labels["instance"] == INSTANCE


def test_the_dead_man_heard_of_it_all_the_time(scene: Scene) -> None:
    messages = scene.monitoring.hooks.sent("dead-man")
    assert len(messages) >= 2
    assert {message.status for message in messages} == {"firing"}


LOADS_SECONDS = 600.0


@pytest.mark.e2e
def test_with_scrapes_of_a_minute_and_a_load_of_ten_the_rules_fire_the_same() -> None:
    """Nothing is shortened: about 40 minutes. The loop's turn of 110 s is one that public rules never tell of."""
    needs_boot()
    with Booted() as booted, GpuHost(booted) as host:
        host.unit("vllm-incident", "0,1", loads=5.0, lingers=200.0, restart_sec=30.0)
        host.unit("vllm-loop", "2", loads=100.0, restart_sec=10.0)
        host.unit("vllm-long", "3,4", loads=LOADS_SECONDS)
        host.unit("vllm-stopped", "5")
        names = ("vllm-incident", "vllm-loop", "vllm-long", "vllm-stopped")
        host.ready(*names)
        host.tell("vllm-loop", "broken")
        with Monitoring({HOST: host.exporter.port}, Pace(scrape="60s", evaluation="30s")) as monitoring:
            scene, hooks = Scene(host=host, monitoring=monitoring), monitoring.hooks
            monitoring.prometheus.wait_for("llmhost_unit_info", 90)
            host.start(*names)
            began = time.monotonic()
            monitoring.prometheus.wait_for("llmhost_engine_up{unit='vllm-incident.service'} == 1", 150)
            host.tell("vllm-incident", "fail")
            failed = time.monotonic()
            host.booted.systemctl("stop", "vllm-stopped.service")
            latest = 60 + 30 + 30 + 5  # a scrape, an evaluation, group_wait
            hooks.until(lambda: scene.pager("vllm-incident"), 30 + latest)
            hooks.until(lambda: scene.pager("vllm-loop"), began + 2 * 110 + latest - time.monotonic())
            host.untell("vllm-loop", "broken")
            host.serves("vllm-long", 1, began + LOADS_SECONDS + 30 - time.monotonic())
            assert host.booted.show("vllm-long.service", "NRestarts")["NRestarts"] == "0"
            ends = 200 + 30 + (15 + 12 + 5) * 60 + 300  # memory, a start, what the rule waits and keeps, group_interval
            paged = ("vllm-incident", "vllm-loop")
            hooks.until(
                lambda: all(scene.pager(name)[-1].status == "resolved" for name in paged),
                failed + ends - time.monotonic(),
            )
            pages = {"vllm-incident": "LlmhostRestartedWhileMemoryResident", "vllm-loop": "LlmhostRestartLoop"}
            assert {name: scene.messages(name) for name in names} == {
                name: [("firing", [pages[name]]), ("resolved", [pages[name]])] if name in pages else []
                for name in names
            }
            assert len(hooks.sent("pager")) == 2 * len(pages)
