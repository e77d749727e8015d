"""Whether logind removes the shared memory of people, and who is one."""

import contextlib
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from dbus_next.constants import MessageType
from dbus_next.message import Message
from dbus_next.signature import Variant
from tests.fakes.booted import Booted, booted_systemd
from tests.fakes.bus import FakeSystemd, PrivateBus
from tests.fakes.bus_peer import Peer

from llmhost.model.unit import Logind, UnitsReport
from llmhost.sources.systemd.source import SystemdSource

__all__ = ["booted_systemd"]

LOGIND = "org.freedesktop.login1"


def read(address: str, root: Path, *, asks: bool = True) -> UnitsReport:
    source = SystemdSource(
        patterns=("a.service",),
        discover=False,
        is_engine_command=lambda _: False,
        address=address,
        root=root,
        asks_logind=asks,
    )
    try:
        return source.read(time.monotonic() + 10)
    finally:
        source.close()


class FakeLogind:
    """Owns logind's name, and answers every call with one value; None: with nothing."""

    def __init__(self, bus: PrivateBus, answer: Variant | None) -> None:
        self._peer = Peer(bus.address)
        self._peer.call("RequestName", "su", LOGIND, 0)
        self._answer = answer
        self.asked: list[list[object]] = []
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def _serve(self) -> None:
        while (call := self._peer.receive()) is not None:
            if call.message_type is MessageType.METHOD_CALL:
                self.asked.append(call.body)
                if self._answer is not None:
                    self._peer.send(Message.new_method_return(call, "v", [self._answer]))

    def close(self) -> None:
        self._peer.close()
        self._thread.join()


@pytest.fixture(name="bus")
def fixture_bus() -> Iterator[PrivateBus]:
    with PrivateBus() as bus, FakeSystemd(bus, units=[{"Id": "a.service"}]):
        yield bus


def answered(bus: PrivateBus, answer: Variant | None, root: Path, *, asks: bool = True) -> tuple[Logind | None, int]:
    with contextlib.closing(FakeLogind(bus, answer)) as logind:
        report = read(bus.address, root, asks=asks)
        assert [unit.id.name for unit in report.units] == ["a.service"]
        assert logind.asked in ([], [[f"{LOGIND}.Manager", "RemoveIPC"]])
        return report.logind, len(logind.asked)


def test_what_it_says_is_told_with_who_is_a_person_and_who_lingers(bus: PrivateBus, tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/login.defs").write_text("# SYS_UID_MAX 1\nUID_MIN\t500\nSYS_UID_MAX\t\t 499\n")
    (tmp_path / "var/lib/systemd/linger").mkdir(parents=True)
    (tmp_path / "var/lib/systemd/linger/llm").touch()
    told, _ = answered(bus, Variant("b", True), tmp_path)
    assert told == Logind(removes_ipc=True, first_person_uid=500, lingering=frozenset({"llm"}))


def test_without_its_files_people_begin_where_systemd_has_them_begin(bus: PrivateBus, tmp_path: Path) -> None:
    told, _ = answered(bus, Variant("b", False), tmp_path)
    assert told == Logind(removes_ipc=False, first_person_uid=1000)


def test_one_that_says_something_else_or_nothing_or_is_not_asked_is_absent(bus: PrivateBus, tmp_path: Path) -> None:
    assert answered(bus, Variant("s", "yes"), tmp_path) == (None, 1)
    began = time.monotonic()
    assert answered(bus, None, tmp_path) == (None, 1)
    assert time.monotonic() - began >= 0.5
    assert answered(bus, Variant("b", True), tmp_path, asks=False) == (None, 0)


def test_one_that_does_not_run_is_absent(bus: PrivateBus, tmp_path: Path) -> None:
    assert read(bus.address, tmp_path).logind is None


def test_a_real_one_tells_and_is_not_started_for_that(booted_systemd: Booted) -> None:
    logind = "systemd-logind.service"
    assert read(booted_systemd.bus_address, booted_systemd.root).logind is None
    assert booted_systemd.show(logind, "ActiveState") == {"ActiveState": "inactive"}
    booted_systemd.run(["mkdir", "-p", "/etc/systemd/logind.conf.d"])
    for says in ("no", "yes"):
        booted_systemd.write("/etc/systemd/logind.conf.d/ipc.conf", f"[Login]\nRemoveIPC={says}\n")
        booted_systemd.systemctl("restart", logind)
        try:
            found = read(booted_systemd.bus_address, booted_systemd.root).logind
        finally:
            booted_systemd.systemctl("stop", logind)
        assert found is not None
        assert (found.removes_ipc, found.first_person_uid) == (says == "yes", 1000)
