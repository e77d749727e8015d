"""The demo's output: lines of at most 80 columns, with the time since it began."""

import sys
import textwrap
import threading
import time
from collections.abc import Iterable

from tests.fakes.webhooks import Alert, Notification

_WIDTH = 80
_INDENT = 11  # "  0:00  "
_STRONG, _QUIET, _BAD, _GOOD, _PLAIN = "\033[1m", "\033[2m", "\033[31m", "\033[32m", "\033[0m"


class Narrator:
    """Writes to standard output, from any thread; in colour only to a terminal."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._lock = threading.Lock()
        self._colours = sys.stdout.isatty()
        self._fired: set[tuple[str, str]] = set()

    def heading(self, text: str) -> None:
        self._write("", *textwrap.wrap(text, _WIDTH), colour=_STRONG)

    def plain(self, text: str) -> None:
        """Write a paragraph without the time."""
        self._write(*textwrap.wrap(text, _WIDTH - 2, initial_indent="  ", subsequent_indent="  "))

    def command(self, text: str) -> None:
        """Write what can be typed, in one line however long it is."""
        self._write(f"    {text}")

    def says(self, text: str) -> None:
        self._at("", text)

    def quotes(self, text: str) -> None:
        """Write what a program said."""
        indent = " " * (_INDENT + 2)
        self._write(*textwrap.wrap(text, _WIDTH, initial_indent=indent, subsequent_indent=indent), colour=_QUIET)

    def good(self, text: str) -> None:
        self._at("", text, _GOOD)

    def bad(self, text: str) -> None:
        self._at("", text, _BAD)

    def notified(self, notification: Notification) -> None:
        """Write what came at the webhook, but no dead man's signal, nor the end of an alert that was never written."""
        if notification.receiver == "dead-man":
            return
        for status, colour in (("firing", _BAD), ("resolved", _GOOD)):
            for alert in once(alert for alert in notification.alerts if alert.status == status):
                if status == "firing":
                    self._fired.add((notification.group, alert.name))
                elif (notification.group, alert.name) not in self._fired:
                    continue
                text = f"{notification.receiver.upper()}: {alert.name} {status}"
                self._at("==>", text, colour)
                if status == "firing":
                    self.quotes(alert.annotations.get("description", ""))

    def _at(self, mark: str, text: str, colour: str = "") -> None:
        seconds = int(time.monotonic() - self._began)
        first = f"{seconds // 60:3}:{seconds % 60:02}  {mark:3} "[:_INDENT].ljust(_INDENT)
        self._write(*textwrap.wrap(text, _WIDTH, initial_indent=first, subsequent_indent=" " * _INDENT), colour=colour)

    def _write(self, *lines: str, colour: str = "") -> None:
        with self._lock:
            for line in lines:
                print(f"{colour}{line}{_PLAIN}" if colour and self._colours else line, flush=True)


def once(alerts: Iterable[Alert]) -> list[Alert]:
    """Return one of the alerts that differ in the GPU alone."""
    found = {(alert.name, alert.labels.get("unit", ""), alert.labels.get("instance", "")): alert for alert in alerts}
    return list(found.values())
