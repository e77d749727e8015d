"""Telling systemd how we are: sd_notify(3), one datagram per message."""

import os
import socket
from collections.abc import Mapping


class Notifier:
    """Sends to $NOTIFY_SOCKET; silent without one. A message that cannot be sent is lost: it is no reason to end."""

    def __init__(self, environment: Mapping[str, str] | None = None) -> None:
        found = os.environ if environment is None else environment
        address = found.get("NOTIFY_SOCKET", "")
        self._address = "\0" + address[1:] if address.startswith("@") else address
        self.watchdog_seconds = _watchdog_seconds(found)

    def extend(self, seconds: float) -> None:
        """Ask for this much time from now on, for a start or a stop under way."""
        self.send(EXTEND_TIMEOUT_USEC=str(int(seconds * 1e6)))

    def send(self, **fields: str) -> None:
        if not self._address:
            return
        text = "\n".join(f"{name}={' '.join(value.splitlines())}" for name, value in fields.items())
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as out:
                out.setblocking(False)
                out.sendto(text.encode(errors="replace"), self._address)
        except OSError:
            return


def _watchdog_seconds(environment: Mapping[str, str]) -> float | None:
    """Return WATCHDOG_USEC in seconds; None where it is not set or for another process (sd_watchdog_enabled(3))."""
    if environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        return None
    try:
        microseconds = int(environment.get("WATCHDOG_USEC", ""))
    except ValueError:
        return None
    return microseconds / 1e6 if microseconds > 0 else None
