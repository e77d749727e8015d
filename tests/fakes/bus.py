"""A private message bus, and a fake systemd on it that a test scripts.

    with PrivateBus() as bus, FakeSystemd(bus, units=[{"Id": "vllm.service", "ActiveState": "activating"}]) as systemd:
        ...  # give bus.address to the code under test

`PrivateBus` is a real dbus-daemon with the system bus's limits; it can be paused (SIGSTOP), killed and started again.

`FakeSystemd(bus, units=[…], unit_files=[…])` owns org.freedesktop.systemd1 and answers from plain data:
- `units`: the loaded ones, a dict of property name → value each. "Id" is needed; all else has a default: loaded,
  active, running, the settings that systemd itself defaults to, no times. Values are plain Python: str, int, bool,
  lists. Exec lists may be given as argument vectors, `"ExecStart": [["/usr/bin/vllm", "serve"]]`, and InvocationID as
  hex. `MISSING` as the value takes a property away (older systemd); a dbus_next Variant is sent as it is (a wrong
  type, or a property that `unit_properties` does not know). "Names" makes aliases.
- `unit_files`: (path, state) of the unit files there are, loaded or not, templates too:
  `("/etc/systemd/system/vllm.service", "enabled")`.

What it can do besides: `change` (properties, and the signals of it), `set` (without signals), `load`, `unload`,
`reload`, `emit` (any signal), `leave` and `enter` (the name on the bus), and `answers[method]`: SILENCE, an Error, or
seconds to wait. What it tells: `calls`, each as "Method(arguments)", and `touched`, the paths that a real systemd would
have been made to load by being asked for.
"""

import contextlib
import fnmatch
import os
import shutil
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, NoReturn, Self

from dbus_next.constants import MessageType
from dbus_next.message import Message
from dbus_next.signature import Variant
from tests.fakes.bus_peer import BUS, BUS_PATH, Peer
from tests.fakes.needs import needs
from tests.fakes.unit_properties import (
    SERVICE_SIGNATURES,
    SIGNALLED_SERVICE,
    SIGNALLED_UNIT,
    SIGNATURES,
    UNIT_SIGNATURES,
    full,
    unit_path,
    variant,
)

SYSTEMD = "org.freedesktop.systemd1"
MANAGER_PATH = "/org/freedesktop/systemd1"
MANAGER = f"{SYSTEMD}.Manager"
UNIT = f"{SYSTEMD}.Unit"
SERVICE = f"{SYSTEMD}.Service"
PROPERTIES = f"{BUS}.Properties"

MISSING = object()
SILENCE = object()

_CONFIG = """<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <type>system</type>
  <listen>unix:path={socket}</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <allow own="*"/>
    <allow send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
  </policy>
  <limit name="max_match_rules_per_connection">512</limit>
  <limit name="max_replies_per_connection">128</limit>
</busconfig>
"""


class PrivateBus:
    """A dbus-daemon of one's own, gone with the context."""

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="llmhost-bus-"))
        self._socket = self._directory / "bus"
        self._process: subprocess.Popen[bytes] | None = None
        self.address = f"unix:path={self._socket}"

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> None:
        """Start it; returns when it listens."""
        config = self._directory / "bus.conf"
        config.write_text(_CONFIG.format(socket=self._socket))
        self._socket.unlink(missing_ok=True)
        daemon = needs("dbus-daemon")
        self._process = subprocess.Popen(
            [daemon, f"--config-file={config}", "--nofork", "--print-address"], stdout=subprocess.PIPE
        )
        assert self._process.stdout is not None
        assert self._process.stdout.readline()

    def kill(self) -> None:
        if self._process is not None:
            self._process.kill()  # also works on one that is stopped
            self._process.wait()
            assert self._process.stdout is not None
            self._process.stdout.close()
            self._process = None

    def pause(self) -> None:
        """Stop it: it accepts connections and bytes as far as the kernel's buffers go, and answers nothing."""
        os.kill(self.pid, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self.kill()
        shutil.rmtree(self._directory)


@dataclass(frozen=True)
class Error:
    """An answer that is an error."""

    name: str = f"{BUS}.Error.Failed"
    text: str = "no"


class FakeSystemd:
    """See the top of this file. Runs in a thread of its own."""

    def __init__(
        self,
        bus: PrivateBus,
        units: Iterable[Mapping[str, Any]] = (),
        unit_files: Sequence[tuple[str, str]] = (),
        *,
        version: str = "252 (fake)",
        own: bool = True,
    ) -> None:
        self.unit_files = list(unit_files)
        self.version = version
        self.calls: list[str] = []
        self.environment: list[str] = []
        self.touched: list[str] = []
        self.boot_times: dict[str, int] = {}  # UserspaceTimestamp, FinishTimestamp, each also …Monotonic; microseconds
        self.answers: dict[str, object] = {}
        self._units: dict[str, dict[str, Any]] = {}
        for unit in units:
            self._units[unit["Id"]] = full(unit, self._states())
        self._lock = threading.RLock()
        self.peer = Peer(bus.address)
        if own:
            self.enter()
        self._thread = threading.Thread(target=self._serve, name="fake-systemd", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self.peer.close()
        self._thread.join(5)

    def enter(self) -> None:
        self.peer.send(Message(BUS, BUS_PATH, BUS, "RequestName", signature="su", body=[SYSTEMD, 0]))

    def leave(self) -> None:
        self.peer.send(Message(BUS, BUS_PATH, BUS, "ReleaseName", signature="s", body=[SYSTEMD]))

    def emit(self, path: str, interface: str, member: str, signature: str = "", *body: object) -> None:
        self.peer.signal(path, interface, member, signature, *body)

    def set(self, name: str, **properties: object) -> None:
        """Change properties without a signal."""
        with self._lock:
            self._units[name].update(properties)

    def change(self, name: str, **properties: object) -> None:
        """Change properties and signal it as systemd does: all that is signalled at all, Service before Unit."""
        with self._lock:
            self.set(name, **properties)
            for interface, names in ((SERVICE, SIGNALLED_SERVICE), (UNIT, SIGNALLED_UNIT)):
                self.signal_changed(name, interface, names)

    def signal_changed(self, name: str, interface: str, names: Iterable[str]) -> None:
        unit = self._units[name]
        values = {key: variant(key, unit[key]) for key in sorted(names) if unit[key] is not MISSING}
        self.emit(unit_path(name), PROPERTIES, "PropertiesChanged", "sa{sv}as", interface, values, [])

    def load(self, unit: Mapping[str, Any]) -> None:
        with self._lock:
            self._units[unit["Id"]] = full(unit, self._states())
            self.emit(MANAGER_PATH, MANAGER, "UnitNew", "so", unit["Id"], unit_path(unit["Id"]))

    def unload(self, name: str) -> None:
        with self._lock:
            del self._units[name]
            self.emit(MANAGER_PATH, MANAGER, "UnitRemoved", "so", name, unit_path(name))

    def reload(self, units: Iterable[Mapping[str, Any]] | None = None) -> None:
        """Do a daemon-reload: everything goes and comes back, with other properties where `units` are given."""
        with self._lock:
            self.emit(MANAGER_PATH, MANAGER, "Reloading", "b", True)
            for name in self._units:
                self.emit(MANAGER_PATH, MANAGER, "UnitRemoved", "so", name, unit_path(name))
            if units is not None:
                self._units = {unit["Id"]: full(unit, self._states()) for unit in units}
            for name in self._units:
                self.emit(MANAGER_PATH, MANAGER, "UnitNew", "so", name, unit_path(name))
            self.emit(MANAGER_PATH, MANAGER, "Reloading", "b", False)

    def _states(self) -> dict[str, str]:
        return {path.rpartition("/")[2]: state for path, state in self.unit_files}

    def _serve(self) -> None:
        while (message := self.peer.receive()) is not None:
            if message.message_type is MessageType.METHOD_CALL:
                with contextlib.suppress(OSError):
                    self._answer(message)

    def _answer(self, call: Message) -> None:
        answer = self.answers.get(call.member)
        self.calls.append(f"{call.member}({', '.join(map(str, call.body))})")
        if answer is SILENCE:
            return
        if isinstance(answer, int | float):
            time.sleep(answer)
        with self._lock:
            try:
                signature, body = self._result(call) if not isinstance(answer, Error) else _fail(answer)
            except _FailError as fail:
                self.peer.send(Message.new_error(call, fail.error.name, fail.error.text))
            else:
                self.peer.send(Message.new_method_return(call, signature, body))

    def _result(self, call: Message) -> tuple[str, list[Any]]:
        match call.member:
            case "Subscribe" | "Ping":
                return "", []
            case "ListUnitsByPatterns":
                return "a(ssssssouso)", [[self._row(name) for name in self._matching(call.body[1], self._units)]]
            case "ListUnitFilesByPatterns":
                wanted = set(self._matching(call.body[1], self._states()))
                return "a(ss)", [
                    [[path, state] for path, state in self.unit_files if path.rpartition("/")[2] in wanted]
                ]
            case "GetUnit":
                name = self._id(call.body[0])
                if name is None:
                    raise _FailError(Error(f"{SYSTEMD}.NoSuchUnit", f"Unit {call.body[0]} not loaded."))
                return "o", [unit_path(name)]
            case "GetUnitFileState":
                return "s", [self._file_state(call.body[0])]
            case "GetAll":
                return "a{sv}", [self._properties(call.path, call.body[0])]
            case "Get" if call.path == MANAGER_PATH and call.body[1] == "Version":
                return "v", [Variant("s", self.version)]
            case "Get" if call.path == MANAGER_PATH and call.body[1] == "Environment":
                return "v", [Variant("as", self.environment)]
            case "Get" if call.path == MANAGER_PATH and call.body[1] in self.boot_times:
                return "v", [Variant("t", self.boot_times[call.body[1]])]
            case "Get" if call.path == MANAGER_PATH:
                raise _FailError(Error(f"{BUS}.Error.UnknownProperty", call.body[1]))
            case "Get":
                properties = self._properties(call.path, call.body[0])
                if call.body[1] not in properties:
                    raise _FailError(Error(f"{BUS}.Error.UnknownProperty", call.body[1]))
                return "v", [properties[call.body[1]]]
            case _:
                raise _FailError(Error(f"{BUS}.Error.UnknownMethod", call.member))

    def _id(self, name: str) -> str | None:
        for unit in self._units.values():
            if name == unit["Id"] or name in unit["Names"]:
                return str(unit["Id"])
        return None

    def _row(self, name: str) -> list[Any]:
        unit = self._units[name]
        states = [str(unit[key]) for key in ("LoadState", "ActiveState", "SubState")]
        return [name, unit["Description"], *states, "", unit_path(name), 0, "", "/"]

    def _file_state(self, name: str) -> str:
        states = self._states()
        prefix, at, suffix = name.partition("@")
        template = f"{prefix}@.{suffix.rpartition('.')[2]}" if at else name
        if name in states:
            return states[name]
        if template in states:
            return "disabled"
        raise _FailError(Error(f"{BUS}.Error.FileNotFound", "No such file or directory"))

    def _properties(self, path: str, interface: str) -> dict[str, Variant]:
        name = next((name for name in self._units if unit_path(name) == path), None)
        if name is None:
            # Real systemd loads it, finds nothing, tells everybody, and unloads it.
            self.touched.append(path)
            raise _FailError(Error(f"{BUS}.Error.UnknownObject", path))
        signatures = {"": SIGNATURES, UNIT: UNIT_SIGNATURES, SERVICE: SERVICE_SIGNATURES}[interface]
        unit = self._units[name]
        return {
            key: variant(key, value)
            for key, value in unit.items()
            if value is not MISSING and (key in signatures or isinstance(value, Variant))
        }

    @staticmethod
    def _matching(patterns: Sequence[str], names: Iterable[str]) -> Iterator[str]:
        return (name for name in names if not patterns or any(fnmatch.fnmatchcase(name, glob) for glob in patterns))


class _FailError(Exception):
    def __init__(self, error: Error) -> None:
        super().__init__(error.text)
        self.error = error


def _fail(error: Error) -> NoReturn:
    raise _FailError(error)
