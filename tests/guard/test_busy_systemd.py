"""A systemd that is busy, with a daemon-reload say, while a guard waits."""

from tests.fakes.booted import Booted, booted_systemd
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]

GENERATOR = "/run/systemd/system-generators/slow"


def test_what_a_unit_needs_stays_known_while_systemd_reloads_for_long(booted_systemd: Booted, host: Host) -> None:
    """8 s are more than the 5 s after which a guard that never learnt what is needed lets the start go on."""
    host.use({0: "80G"})
    host.unit("vllm-a", "0")
    host.start("vllm-a")
    host.says("vllm-a", "waits for GPU 0")
    booted_systemd.run(["mkdir", "-p", "/run/systemd/system-generators"])
    booted_systemd.write(GENERATOR, "#!/bin/sh\nsleep 8\n")
    booted_systemd.run(["chmod", "755", GENERATOR])
    booted_systemd.systemctl("daemon-reload")
    booted_systemd.run(["rm", GENERATOR])
    assert host.state("vllm-a") == "start-pre", host.log("vllm-a")
    assert "cannot" not in host.log("vllm-a")
    host.use({0: "0"})
    host.becomes("vllm-a", "running")
