"""Discovery of services that run a known engine under a name that no pattern matches."""

import asyncio
from collections.abc import Callable, Iterable

from llmhost.sources.systemd.bus.connection import CallFailedError
from llmhost.sources.systemd.calls import Systemd
from llmhost.sources.systemd.names import is_service

_WORKERS = 4  # calls in flight: this is never urgent
_PAUSE_SECONDS = 0.1  # per worker after each unit that is not listed: at most 40 of them a second
_MAX_QUEUED = 1000
# Services of every system, which run no engine: families whose names are systemd's, and whole names.
_VENDOR_PREFIXES = ("systemd-", "user@", "user-runtime-dir@", "getty@", "serial-getty@", "modprobe@")
_VENDOR_NAMES = frozenset({"dbus.service", "dbus-broker.service", "llmhost.service"})


class Discovery:
    """Reads the command of each loaded service once, and calls `found` with the names of those that run an engine."""

    def __init__(
        self,
        systemd: Systemd,
        is_engine_command: Callable[[tuple[str, ...]], bool],
        *,
        found: Callable[[str], None],
        progressed: Callable[[], None],
    ) -> None:
        self._systemd = systemd
        self._is_engine_command = is_engine_command
        self._found = found
        self._progressed = progressed
        self._checked: set[str] = set()  # of those that are loaded
        self._listed: dict[str, None] = {}  # in order
        self._later: dict[str, None] = {}
        self._more = asyncio.Event()
        self._busy = 0  # with listed ones

    def done(self) -> bool:
        """Tell if all listed services have been checked."""
        return not self._listed and not self._busy

    def check_listed(self, names: Iterable[str]) -> None:
        self._enqueue(self._listed, names)

    def check_new(self, name: str) -> None:
        """Check a unit that has just been loaded, at a bounded rate: transient ones may be started in a loop."""
        self._enqueue(self._later, [name])

    def check_all_again(self) -> None:
        """Check all again, at a bounded rate: after a reload, each may run something else."""
        known = self._checked
        self._checked = set()
        self._enqueue(self._later, known)

    def forget(self, name: str) -> None:
        """Drop a unit that is no longer loaded; it is checked when it comes back."""
        self._checked.discard(name)
        self._listed.pop(name, None)
        self._later.pop(name, None)

    def forget_all(self) -> None:
        for names in (self._checked, self._listed, self._later):
            names.clear()

    def keep_only(self, names: Iterable[str]) -> None:
        """Drop all other units: they are no longer loaded."""
        self._checked.intersection_update(names)

    def _enqueue(self, queue: dict[str, None], names: Iterable[str]) -> None:
        for name in names:
            if name in self._checked or name in self._listed or name in self._later:
                continue
            if name in _VENDOR_NAMES or name.startswith(_VENDOR_PREFIXES):
                continue
            if len(queue) < _MAX_QUEUED and is_service(name):
                queue[name] = None
        self._more.set()

    async def run(self) -> None:
        async with asyncio.TaskGroup() as workers:
            for _ in range(_WORKERS):
                workers.create_task(self._work())

    async def _work(self) -> None:
        while True:
            if self._listed:
                self._busy += 1
                try:
                    await self._check(_first_of(self._listed))
                finally:
                    self._busy -= 1
                    self._progressed()
            elif self._later:
                await self._check(_first_of(self._later))
                await asyncio.sleep(_PAUSE_SECONDS)
            else:
                self._more.clear()
                await self._more.wait()

    async def _check(self, name: str) -> None:
        self._checked.add(name)
        try:
            path = await self._systemd.unit_path(name)
            if path is None:
                self.forget(name)
                return
            commands = await self._systemd.exec_start(path)
        except CallFailedError:
            return  # unloaded, or not readable for us; a unit that holds GPU memory is watched even so
        if any(self._is_engine_command(argv) for argv in commands):
            self._found(name)


def _first_of(queue: dict[str, None]) -> str:
    name = next(iter(queue))
    del queue[name]
    return name
