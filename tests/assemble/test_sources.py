"""The sources of one process: made when first asked for, disabled where their collector is switched off."""

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from tests.fakes.nvml import FakeNvml, fake_nvml
from tests.fakes.procfs import write_proc

from llmhost.assemble.sources import DisabledSource, Sources, guard_config
from llmhost.collect.worker import DISABLED, Worker
from llmhost.config.load import parse
from llmhost.config.paths import Paths
from llmhost.config.schema import CollectorsConfig, Config, PidNamespace
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.sources.base import SourceError

__all__ = ["fake_nvml"]

OFF = CollectorsConfig(nvml=False, systemd=False, procfs=False, shm=False, engine=False)
IMPORTED = "print(*sorted(name for name in sys.modules if name.startswith('llmhost.sources.')))"


def soon() -> float:
    return time.monotonic() + 10


def imported(program: str) -> list[str]:
    """Run a program that has `sources`; return the modules of llmhost.sources that it has imported by then."""
    head = "import sys; from llmhost.assemble.sources import Sources; sources = Sources()\n"
    command = [sys.executable, "-c", f"{head}{program}\n{IMPORTED}\nsources.close()"]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout.split()


def test_a_source_is_imported_when_it_is_first_asked_for() -> None:
    assert imported("") == ["llmhost.sources.base"]
    assert imported("sources.host") == ["llmhost.sources.base", "llmhost.sources.host"]
    with_driver = imported("sources.nvml_memory")
    assert "llmhost.sources.nvml.source" in with_driver
    assert not {name.split(".")[2] for name in with_driver} - {"base", "nvml"}


def test_a_module_that_cannot_be_imported_costs_its_own_source_alone() -> None:
    broken = "sys.modules['llmhost.sources.shm.source'] = None\nsources.host\nsources.processes\nsources.units\n"
    fails = "try:\n    sources.segments\nexcept ImportError:\n    pass\nelse:\n    raise SystemExit('it was imported')"
    assert "llmhost.sources.systemd.source" in imported(broken + fails)


def test_a_worker_is_made_once_and_started(tmp_path: Path) -> None:
    write_proc(tmp_path, [{"pid": 10, "argv": ["sleep"]}])
    sources = Sources(paths=Paths(procfs=tmp_path, run=tmp_path / "run"))
    host = sources.host
    assert isinstance(host.answer(host.ask(soon()), soon()), Ok)
    assert sources.host is host
    assert sources.guard_runs.answer(sources.guard_runs.ask(soon()), soon()) == Ok(())
    sources.close()


def test_what_is_switched_off_reads_as_disabled_and_has_no_health() -> None:
    sources = Sources(Config(collectors=OFF))
    workers: tuple[Worker[Any], ...] = (
        sources.nvml,
        sources.nvml_memory,
        sources.processes,
        sources.units,
        sources.segments,
        sources.engines,
    )
    for worker in workers:
        assert worker.ask(soon()).wait(0.0) == DISABLED
        assert worker.answer(worker.ask(soon()), soon()) == DISABLED
        assert worker.health() is None
    assert sources.host.health() is not None, "the host is no collector of its own"
    sources.close()


def test_a_disabled_source_does_nothing_that_it_is_asked_to() -> None:
    source = DisabledSource()
    source.start()
    source.watch(["vllm.service"])
    source.configure(patterns=("*",), discover=True)
    source.set_servers(())
    assert source.lists_due_in_seconds() == 0.0
    assert source.pause("until 12:00") == ()
    source.resume()
    assert source.stuck() is None
    with pytest.raises(SourceError) as caught:
        source.read(soon())
    assert caught.value.cause is Cause.DISABLED
    source.close()


def test_the_config_may_come_after_the_drivers_child_was_started(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    """A PID namespace of its own gives no table of processes, unless the config says that pids are the host's."""
    fake_nvml.write(["gpu 0 total=96G reserved=1G used=600M"])
    write_proc(tmp_path, [{"pid": 10, "argv": ["acme"]}], pid_namespace=1)
    sources = Sources(paths=Paths(procfs=tmp_path), environment=fake_nvml.environment())
    memory = sources.nvml_memory.ask(soon())
    titles = "processes: {titles: [{pattern: acme, engine: acme, role: core}]}\nhost: {pid_namespace: trust}\n"
    sources.configure(parse(titles, name="a"))
    processes = sources.processes.answer(sources.processes.ask(soon()), soon())
    assert isinstance(processes, Ok), processes
    assert processes.value.by_pid[10].engine == "acme"
    report = sources.nvml_memory.answer(memory, soon())
    assert isinstance(report, Ok), report
    assert list(report.value.used_bytes.values()) == [600 << 20]
    sources.close()


def test_without_trust_a_pid_namespace_of_its_own_has_no_processes(tmp_path: Path) -> None:
    write_proc(tmp_path, [{"pid": 10, "argv": ["acme"]}], pid_namespace=1)
    sources = Sources(paths=Paths(procfs=tmp_path))
    reading = sources.processes.answer(sources.processes.ask(soon()), soon())
    assert isinstance(reading, Failed)
    assert reading.cause is Cause.PID_NAMESPACE
    sources.close()


@pytest.mark.parametrize(
    ("vendors", "config", "cause"),
    [
        (["0x8086", "0x10de"], "{}", Cause.NO_LIBRARY),
        (["0x8086"], "{}", Cause.NO_DEVICE),
        ([], "{}", Cause.NO_DEVICE),
        (["0x8086"], "gpus: {expected: 8}", Cause.NO_LIBRARY),
        (["0x8086"], "gpus: {expected: 0}", Cause.NO_DEVICE),
        (None, "{}", Cause.NO_DEVICE),  # a kernel without PCI
        ([""], "{}", Cause.NO_LIBRARY),  # a vendor that cannot be read
    ],
)
def test_no_library_is_missed_where_there_is_no_device_for_it_and_none_is_expected(
    vendors: list[str] | None, config: str, cause: Cause, tmp_path: Path
) -> None:
    (tmp_path / "libnvidia-ml.so.1").touch()  # in front of this machine's own, if it has one
    (tmp_path / "bus").mkdir()
    if vendors is not None:
        (tmp_path / "bus/pci/devices").mkdir(parents=True)
    for number, vendor in enumerate(vendors or ()):
        (tmp_path / f"bus/pci/devices/{number}").mkdir()
        if vendor:
            (tmp_path / f"bus/pci/devices/{number}/vendor").write_text(f"{vendor}\n")
    sources = Sources(parse(config, name="a"), Paths(sysfs=tmp_path), environment={"LD_LIBRARY_PATH": str(tmp_path)})
    reading = sources.nvml.answer(sources.nvml.ask(soon()), soon())
    assert isinstance(reading, Failed)
    assert reading.cause is cause
    sources.close()


def test_closing_ends_the_drivers_child_also_where_memory_alone_was_asked_for(fake_nvml: FakeNvml) -> None:
    fake_nvml.write(["gpu 0 total=96G reserved=1G used=600M"])
    sources = Sources(environment=fake_nvml.environment())
    assert isinstance(sources.nvml_memory.answer(sources.nvml_memory.ask(soon()), soon()), Ok)
    driver = sources.driver
    assert not isinstance(driver, DisabledSource)
    child = Path(f"/proc/{driver._running_child().pid}")
    assert child.exists()
    sources.close()
    assert not child.exists()


def test_closing_makes_nothing() -> None:
    sources = Sources()
    sources.configure(Config(pid_namespace=PidNamespace.TRUST))
    sources.close()
    assert not {"host", "driver", "systemd", "shm", "engine"} & set(vars(sources))


def test_the_guard_has_every_collector_on_and_asks_for_its_units_alone() -> None:
    config = parse("collectors: {nvml: false}\nunits: {patterns: [a.service]}\nhost: {pid_namespace: trust}", name="a")
    its = guard_config(config, ("vllm.service",))
    assert (its.units.patterns, its.units.discover) == (("vllm.service",), False)
    assert its.collectors == CollectorsConfig()
    assert its.pid_namespace is PidNamespace.TRUST


def test_what_is_read_at_once_is_of_the_given_paths(tmp_path: Path) -> None:
    write_proc(tmp_path / "proc", [{"pid": 10, "argv": ["sleep"], "start": 100}])
    (tmp_path / "proc/self").mkdir(exist_ok=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/system.slice/vllm.service\n")
    sources = Sources(paths=Paths(procfs=tmp_path / "proc", shm=tmp_path))
    unit = sources.own_placement().unit
    assert unit is not None
    assert unit.name == "vllm.service"
    started = 100 / os.sysconf("SC_CLK_TCK")
    assert abs(sources.process_age_seconds(10) - (time.clock_gettime(time.CLOCK_BOOTTIME) - started)) < 5
    assert sources.process_age_seconds(11) == 0.0, "there is none"
    free = os.statvfs(tmp_path)
    assert abs((sources.shm_free_bytes() or 0) - free.f_bavail * free.f_frsize) < 1 << 30
    assert Sources(paths=Paths(shm=tmp_path / "none")).shm_free_bytes() is None
    assert Sources(paths=Paths(procfs=tmp_path)).boot_id == ""
