"""First sight of a unit that no pattern names, of its memory, and of the start that finds it, all at once."""

from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.inside import ExporterInside, NvmlInside

__all__ = ["booted_systemd"]

CONFIG = """
host: {pid_namespace: trust}
units: {patterns: ['vllm.service'], discover: true}
collectors: {shm: false, engine: false}
"""


def test_a_unit_that_took_memory_since_the_last_scrape_is_known_as_one_that_is_up(booted_systemd: Booted) -> None:
    booted, nvml = booted_systemd, NvmlInside(booted_systemd)
    nvml.write(["gpu 0 total=96G reserved=1G used=auto"])
    booted.run(["mkdir", "-p", "/opt/first"])
    booted.write("/opt/first/vllm", "#!/bin/sh\nexec sleep 1000\n")
    booted.run(["chmod", "755", "/opt/first/vllm"])
    booted.write_unit("embed.service", "[Service]\nExecStart=/bin/sleep 1000\n")
    booted.write_unit("vllm.service", "[Service]\nExecStart=/opt/first/vllm serve m\n")
    booted.systemctl("daemon-reload")
    with ExporterInside(booted, nvml, CONFIG) as exporter:
        exporter.knows("vllm.service")
        booted.systemctl("start", "embed.service")
        pid = booted.systemctl("show", "--value", "-p", "MainPID", "embed.service").strip()
        nvml.write(["gpu 0 total=96G reserved=1G used=auto", f"proc 0 {pid} mem=70G alive=1"])
        booted.systemctl("start", "vllm.service")
        assert exporter.logged(r"start unit=vllm.service .*?verdict=(\w+)")[1] == "clean"
        assert "embed.service" in {dict(labels)["unit"] for labels in exporter.series()["llmhost_unit_info"]}
    booted.systemctl("stop", "embed.service", "vllm.service")
