"""Services that systemd has loaded since all was read: what is seen of them is all that they ever were. Pure."""

from llmhost.sources.systemd.names import is_service

_MAX_NAMES = 10_000  # loaded at a time; beyond it, the start that such a unit begins with is not counted


class Newcomers:
    """Names, from systemd's word that it has loaded one until its word that it has let go of it.

    One that goes with a reload stays; it could only come back as one that systemd has loaded since, too.
    """

    def __init__(self) -> None:
        self._names: set[str] = set()

    def __contains__(self, name: str) -> bool:
        return name in self._names

    def add(self, name: str) -> None:
        if len(self._names) < _MAX_NAMES and is_service(name):
            self._names.add(name)

    def discard(self, name: str) -> None:
        self._names.discard(name)
