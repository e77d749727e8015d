"""`llmhost serve` as people and Prometheus meet it: the real command, the real child, a real bus."""

import os
import signal
import socket
import subprocess
import threading
import time
from pathlib import Path

from tests.fakes.daemon import LLMHOST, Daemon, environment
from tests.fakes.nvml import FakeNvml, fake_nvml
from tests.fakes.other_users import as_nobody, llmhost_for_all
from tests.fakes.shm import at_dev_shm, tmpfs
from tests.fakes.written_history import history_of
from tests.hosts.written import read, standing, without_varying

from llmhost.sources.pci import has_nvidia_device
from llmhost.state.history_file import HistoryFile

__all__ = ["fake_nvml", "tmpfs"]

GPUS = [f"gpu {index}" for index in range(4)]
WITHOUT_A_DRIVER = "no_device" if has_nvidia_device(Path("/sys")) is False else "no_library"
HUNG = [*GPUS, "delay nvmlDeviceGetMemoryInfo_v2 3 hang"]


def value(page: str, series: str) -> float:
    (line,) = [line for line in page.splitlines() if line.startswith(f"{series} ")]
    return float(line.rsplit(" ", 1)[1])


def once(*arguments: str, env: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    command = [*LLMHOST, "serve", "--once", *arguments]
    return subprocess.run(command, env=environment(env), capture_output=True, text=True, check=False, timeout=120)


def test_once_prints_the_incident_as_it_is_written_down(tmp_path: Path) -> None:
    host = read("incident")
    state = tmp_path / "state"
    state.mkdir()
    store = HistoryFile(state)
    store.save(history_of(host.first["history"]), durable=False)
    store.close()
    with standing(host, tmp_path) as (stands, _):
        config = tmp_path / "llmhost.yml"
        config.write_text(stands.config_text)
        env = stands.environment | {"DBUS_SYSTEM_BUS_ADDRESS": stands.bus_address}
        done = once("--config", str(config), "--path.procfs", str(stands.procfs), "--state-dir", str(state), env=env)
    assert done.returncode == 0, done.stderr
    loaded = "llmhost_config_reload_last_success_timestamp_seconds "

    def comparable(page: str) -> list[str]:
        return [line for line in page.splitlines() if not line.startswith(loaded)]

    assert comparable(without_varying(done.stdout)) == comparable(host.expected.read_text())


def test_it_serves_on_a_machine_that_has_nothing() -> None:
    with Daemon() as daemon:
        status, headers, page = daemon.get()
        assert status == 200
        assert headers["Content-Type"].startswith("text/plain; version=0.0.4")
        assert value(page, 'llmhost_collector_success{collector="procfs"}') == 1
        assert value(page, f'llmhost_collector_fault{{cause="{WITHOUT_A_DRIVER}",collector="nvml"}}') == 1
        assert value(page, 'llmhost_collector_fault{cause="no_bus",collector="systemd"}') == 1
        for path in ("/healthz", "/-/healthy", "/-/ready"):
            assert daemon.get(path)[::2] == (200, "ok\n")
        assert "cannot tell whether all is well" in daemon.get("/")[2]
        status, _, body = daemon.get("/metric")
        assert status == 404
        assert "/metrics" in body
        status, headers, body = daemon.get(method="HEAD")
        assert (status, body) == (200, "")
        assert int(headers["Content-Length"]) > 1000
        status, seconds = daemon.end()
        assert status == 0
        assert seconds < 5


def test_it_runs_without_any_privilege(tmpfs: Path) -> None:
    unprivileged = as_nobody("--bounding-set=-all", "--no-new-privs")
    (tmpfs / "of-somebody").touch()
    with Daemon(prefix=(*at_dev_shm(tmpfs), *unprivileged), program=llmhost_for_all()) as daemon:
        page = daemon.get()[2]
    assert value(page, 'llmhost_collector_success{collector="procfs"}') == 1
    assert value(page, "llmhost_unreadable_processes") > 0  # root's maps, so that nobody knows who holds the file
    assert value(page, 'llmhost_shm_segments{kind="other",state="unknown"}') == 1
    assert value(page, 'llmhost_shm_segments{kind="other",state="stale"}') == 0


def test_a_driver_that_appears_later_is_picked_up(fake_nvml: FakeNvml) -> None:
    fake_nvml.unload()
    with Daemon(env=fake_nvml.environment()) as daemon:
        assert value(daemon.get()[2], 'llmhost_collector_fault{cause="no_driver",collector="nvml"}') == 1
        fake_nvml.write(GPUS)
        until = time.monotonic() + 120
        while "llmhost_gpus 4.0" not in daemon.get()[2]:
            assert time.monotonic() < until, daemon.log
            time.sleep(0.2)
        daemon.logged("collector nvml works again")


def test_a_hung_driver_costs_neither_the_page_nor_the_end(fake_nvml: FakeNvml) -> None:
    fake_nvml.write(HUNG)
    with Daemon(env=fake_nvml.environment()) as daemon:
        began = time.monotonic()
        page = daemon.get(headers={"X-Prometheus-Scrape-Timeout-Seconds": "3"})[2]
        assert time.monotonic() - began < 3
        assert value(page, 'llmhost_nvml_stuck_call_seconds{call="nvmlDeviceGetMemoryInfo_v2",gpu="3"}') > 1
        assert value(page, 'llmhost_collector_success{collector="procfs"}') == 1
        began = time.monotonic()
        daemon.get()
        assert time.monotonic() - began < 2.5  # known to hang: no second wait for the whole deadline
        daemon.logged("collector nvml failed: timeout .*nvmlDeviceGetMemoryInfo_v2 on GPU 3")
        status, seconds = daemon.end()
        assert status == 0
        assert seconds < 5


def test_two_scrapers_at_once_cost_one_collection(fake_nvml: FakeNvml, tmp_path: Path) -> None:
    trace = tmp_path / "trace"
    fake_nvml.write(["gpu 0"])
    with Daemon(env=fake_nvml.environment()) as daemon:
        daemon.get()
        time.sleep(1.1)  # the lists of the first page are old by then
        fake_nvml.write([f"system x trace={trace}", "gpu 0", "delay nvmlDeviceGetMemoryInfo_v2 0 500"])
        scrapers = [threading.Thread(target=daemon.get) for _ in range(2)]
        for scraper in scrapers:
            scraper.start()
        for scraper in scrapers:
            scraper.join()
    calls = [line.split()[2] for line in trace.read_text().splitlines()]
    assert calls.count("nvmlDeviceGetMemoryInfo_v2") == 1
    assert calls.count("nvmlDeviceGetComputeRunningProcesses_v3") == 1


def test_sighup_reloads_and_a_bad_file_keeps_the_old_config(tmp_path: Path) -> None:
    config = tmp_path / "llmhost.yml"
    config.write_text("policy: {resident: 1GiB}\n")
    with Daemon(config=config) as daemon:
        assert value(daemon.get()[2], "llmhost_policy_resident_bytes") == 1 << 30
        config.write_text("policy: {resident: 2GiB}\nweb: {listen: ':1'}\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.logged("the config is reloaded from")
        page = daemon.get()[2]
        assert value(page, "llmhost_policy_resident_bytes") == 2 << 30
        assert value(page, "llmhost_config_reload_success") == 1
        config.write_text("policy: {resident: lots}\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.logged(r"the config is bad, the old one runs on: \S*llmhost.yml:1: policy.resident: ")
        page = daemon.get()[2]
        assert value(page, "llmhost_policy_resident_bytes") == 2 << 30
        assert value(page, "llmhost_config_reload_success") == 0


def test_a_reload_says_what_only_a_restart_changes(tmp_path: Path) -> None:
    config = tmp_path / "llmhost.yml"
    config.write_text("")
    with Daemon("--log.level", "info", config=config) as daemon:
        config.write_text("collectors: {nvml: false}\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.logged(r"the config is reloaded from \S+llmhost.yml; restart for: collectors\n")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.logged(r"restart for: collectors\n(.*\n)*.*restart for: collectors\n")  # it still does
        config.write_text("")
        daemon.process.send_signal(signal.SIGHUP)
        daemon.logged(r"the config is reloaded from \S+llmhost.yml\n")


def test_a_disabled_collector_has_no_series(tmp_path: Path) -> None:
    config = tmp_path / "llmhost.yml"
    config.write_text("collectors: {nvml: false, systemd: false}\n")
    page = once("--config", str(config)).stdout
    assert 'collector="procfs"' in page
    assert 'collector="nvml"' not in page
    assert 'collector="systemd"' not in page


def test_systemd_is_notified_when_it_is_ready_reloading_and_well(tmp_path: Path) -> None:
    address = tmp_path / "notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notified:
        notified.bind(str(address))
        notified.settimeout(10)

        def message() -> dict[str, str]:
            return dict(line.split("=", 1) for line in notified.recv(4096).decode().splitlines())

        with Daemon(env={"NOTIFY_SOCKET": str(address), "WATCHDOG_USEC": "400000"}) as daemon:
            assert message() == {"READY": "1", "STATUS": f"serving on 127.0.0.1:{daemon.port}"}
            assert message() == {"WATCHDOG": "1"}
            daemon.process.send_signal(signal.SIGHUP)
            state = message()
            while "WATCHDOG" in state:
                state = message()
            assert state["RELOADING"] == "1"
            assert int(state["MONOTONIC_USEC"]) > 0
            assert message() == {"STATUS": "serving, config reloaded"}
            assert message() == {"READY": "1"}
            daemon.process.send_signal(signal.SIGTERM)
            state = message()
            while "WATCHDOG" in state:
                state = message()
            assert state == {"STOPPING": "1"}


def test_a_log_for_the_journal_has_priorities() -> None:
    reader, writer = os.pipe()
    try:
        found = os.fstat(writer)
        env = environment({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"})
        command = [*LLMHOST, "serve", "--once"]
        done = subprocess.run(command, env=env, stdout=subprocess.DEVNULL, stderr=writer, check=False, timeout=120)
        os.close(writer)
        writer = -1
        with os.fdopen(reader, closefd=False) as lines:
            log = lines.read()
    finally:
        os.close(reader)
        if writer >= 0:
            os.close(writer)
    assert done.returncode == 0
    assert f"<4>collector nvml failed: {WITHOUT_A_DRIVER}" in log
