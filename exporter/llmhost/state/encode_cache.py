"""What has been put in words before."""


class Written:
    """Texts of objects that have been written before: what has not changed is not put in words again."""

    def __init__(self, *kinds: type) -> None:
        """Remember frozen dataclasses of these kinds, each from one writing to the next."""
        self._kinds = frozenset(kinds)
        self._before: dict[int, tuple[object, str]] = {}
        self._now: dict[int, tuple[object, str]] = {}

    def remembers(self, kind: type) -> bool:
        return kind in self._kinds

    def text_of(self, value: object) -> str | None:
        found = self._now.get(id(value)) or self._before.get(id(value))
        if found is None:
            return None
        self._now[id(value)] = found
        return found[1]

    def remember(self, value: object, text: str) -> None:
        self._now[id(value)] = (value, text)  # the object too: its id is its own only while it lives

    def forget_unused(self) -> None:
        """Keep what has been used since the last time."""
        self._before, self._now = self._now, {}
