"""The effect of a service's sandbox on a guard without "+": the doctor's finding guard-blinded."""

import re

from tests.fakes.booted import booted_systemd
from tests.guard.test_on_systemd import Host, host

__all__ = ["booted_systemd", "host"]


def test_one_that_may_not_ask_systemd_lets_the_start_go_on_and_one_without_records_still_waits(host: Host) -> None:
    host.use({0: "80G", 1: "80G", 2: "80G"})
    host.unit("vllm-a", "0", prefix="", more="RestrictAddressFamilies=AF_INET AF_INET6")
    host.unit("vllm-b", "1", prefix="", more="ProtectSystem=strict", options="--timeout 2s")
    host.unit("vllm-c", "2", prefix="+", more="RestrictAddressFamilies=AF_INET\nProtectSystem=strict")
    host.start("vllm-a", "vllm-b", "vllm-c")
    host.becomes("vllm-b", "failed")
    assert re.search(r"held after 2\.\d s", host.log("vllm-b"))
    assert "this run is not recorded" in host.log("vllm-b")
    host.becomes("vllm-a", "running")
    assert "systemd cannot be asked" in host.log("vllm-a")
    assert host.state("vllm-c") == "start-pre", "outside the sandbox it waits as ever"
