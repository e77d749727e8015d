"""The demo with a real systemd: the incident, and the guard that ends it."""

import sys
import time
from pathlib import Path

from tests.demo.narrator import Narrator
from tests.fakes.gpu_host import GpuHost
from tests.fakes.monitoring import Monitoring

ROOT = Path(__file__).parents[2]
NAME = "vllm-glm"
UNIT = f"{NAME}.service"
OUTLIVES_SECONDS = 45.0
RESTART_SECONDS = 5.0


def guard_drop_in() -> str:
    """Return systemd/guard.conf for this machine, at the demo's pace."""
    text = (ROOT / "systemd" / "guard.conf").read_text()
    text = text.replace("/opt/llmhost/bin/python", sys.executable)
    text = text.replace("llmhost guard", "llmhost guard --config /etc/llmhost-test.yml", 1)
    return text.replace("RestartSec=30s", f"RestartSec={RESTART_SECONDS:g}s")


def write_unit(host: GpuHost) -> None:
    host.unit(NAME, "0,1", loads=3, lingers=OUTLIVES_SECONDS, restart_sec=RESTART_SECONDS)
    host.ready(NAME)


def status(host: GpuHost) -> str:
    return host.booted.show(UNIT, "StatusText")["StatusText"]


def replay(narrator: Narrator, host: GpuHost, monitoring: Monitoring) -> None:
    """Play the incident and describe it."""
    narrator.says(
        f"systemctl start {UNIT}. It wants 86.4 GiB (0.9 of 96) of each of its GPUs, 0 and 1, finds them free, "
        "and loads."
    )
    host.start(NAME)
    host.serves(NAME)
    monitoring.prometheus.wait_for(f"llmhost_engine_up{{unit='{UNIT}'}} == 1")
    narrator.good("It answers requests. Prometheus scrapes the exporter: all is well.")
    time.sleep(3)

    host.tell(NAME, "fail")
    host.becomes(NAME, "auto-restart")
    narrator.bad(
        f"Something goes wrong, once: the engine dies with exit status 1. systemd will start it again in "
        f"{RESTART_SECONDS:g} s (Restart=on-failure, RestartSec={RESTART_SECONDS:g}). But the driver takes its time to "
        f"give the dead process's memory back, {OUTLIVES_SECONDS:g} s here."
    )
    host.until(lambda: "ValueError" in host.log(NAME), "the engine refuses", 30)
    narrator.bad("systemd has started it again. It finds its predecessor's weights on the GPUs, and refuses:")
    narrator.quotes(host.log(NAME).splitlines()[-1])
    narrator.says("What llmhost has to say of that start, in its log:")
    resident = host.exporter.logged(r"start unit=\S+ attempt=2 .*")
    narrator.quotes(resident[0].partition(" invocation_id")[0])
    monitoring.hooks.until(lambda: monitoring.pages(unit=UNIT), 60)

    until = time.monotonic() + 120
    while "LlmhostRestartLoop" not in monitoring.alertmanager.names(quietened=True):
        if time.monotonic() > until:
            break
        time.sleep(0.2)
    else:
        narrator.says(
            f"systemd goes on: {host.log(NAME).count('ValueError')} starts refused by now. LlmhostRestartLoop fires, "
            "but Alertmanager keeps it quiet, as the cause has been told already. One cause, one page."
        )

    narrator.says(f"The guard is installed: systemd/guard.conf as a drop-in of {UNIT}, and systemctl daemon-reload.")
    host.drop_in(NAME, guard_drop_in())
    refused = host.log(NAME).count("ValueError")
    host.becomes(NAME, "start-pre", 30)
    host.until(lambda: "waits for" in status(host), "the guard waits", 20)
    narrator.good("The next start waits in ExecStartPre= in place of failing. systemctl status says what for:")
    narrator.quotes(status(host))
    host.serves(NAME, 2, OUTLIVES_SECONDS + 30)
    narrator.good(
        f"The driver has given the memory back, the guard let the start go on, and the engine serves. Refused since "
        f"the guard is there: {host.log(NAME).count('ValueError') - refused}."
    )
    monitoring.hooks.until(
        lambda: any(page.status == "resolved" for page in monitoring.hooks.sent("pager", unit=UNIT)), 120
    )
    narrator.good("The pager is told that it is over.")
