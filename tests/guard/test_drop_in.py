"""systemd/guard.conf as it is shipped, on a service of a real systemd."""

import sys
from pathlib import Path

from tests.fakes.booted import Booted, booted_systemd
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]

DROP_IN = Path(__file__).parents[2] / "systemd" / "guard.conf"
UNIT = """
[Service]
Environment=LD_LIBRARY_PATH=/opt/nvml FAKE_NVML_STATE=/opt/nvml/state CUDA_VISIBLE_DEVICES=0
Environment=PYTHONHOME=/nonexistent
ExecStart=/opt/test/vllm serve model --gpu-memory-utilization 0.9
StandardError=append:/run/vllm-a.log
Restart=on-failure
User=nobody
PrivateDevices=yes
"""


def test_a_service_with_the_drop_in_starts_once_when_memory_is_free(booted_systemd: Booted, host: Host) -> None:
    booted = booted_systemd
    booted.run(["rm", "-rf", "/opt/llmhost"])  # of the machine, as it is seen inside: a link would be written through
    booted.run(["mkdir", "-p", "/opt/llmhost/bin", "/etc/llmhost", "/etc/systemd/system/vllm-a.service.d"])
    booted.write("/opt/llmhost/bin/python", f'#!/bin/sh\nexec {sys.executable} "$@"\n')
    booted.run(["chmod", "755", "/opt/llmhost/bin/python"])
    booted.write("/etc/llmhost/llmhost.yml", "host: {pid_namespace: trust}\n")
    booted.write_unit("vllm-a.service", UNIT)
    booted.write("/etc/systemd/system/vllm-a.service.d/llmhost-guard.conf", DROP_IN.read_text())
    booted.systemctl("daemon-reload")
    try:
        host.use({0: "80G"})
        host.start("vllm-a")
        host.says("vllm-a", "waits for GPU 0")
        host.use({0: "0"})
        host.becomes("vllm-a", "running")
        assert booted.show(
            "vllm-a.service",
            "NRestarts",
            "NotifyAccess",
            "RestartUSec",
            "TimeoutStartUSec",
            "StartLimitIntervalUSec",
            "StartLimitBurst",
            "KillMode",
        ) == {
            "NRestarts": "0",
            "NotifyAccess": "exec",
            "RestartUSec": "30s",
            "TimeoutStartUSec": "30min",
            "StartLimitIntervalUSec": "2h",
            "StartLimitBurst": "5",
            "KillMode": "control-group",
        }
        verified = booted.run(["systemd-analyze", "verify", "vllm-a.service"], check=False)
        assert "llmhost-guard.conf" not in verified.stderr, verified.stderr
    finally:
        booted.systemctl("stop", "vllm-a.service")
        booted.run(["rm", "-r", "/etc/systemd/system/vllm-a.service.d", "/etc/llmhost/llmhost.yml"])
