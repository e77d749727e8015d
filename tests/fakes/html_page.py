"""HTML as a strict reader takes it: every element is closed where it should be."""

from dataclasses import dataclass, field
from html.parser import HTMLParser

VOID = frozenset({"meta"})


@dataclass(slots=True, eq=False)
class Element:
    tag: str
    attributes: dict[str, str | None]
    parent: "Element | None" = None
    children: list["Element | str"] = field(default_factory=list)

    @property
    def text(self) -> str:
        return "".join(child if isinstance(child, str) else child.text for child in self.children)

    def all(self, tag: str = "", **attributes: str) -> list["Element"]:
        """Find what is below it, in order; `class_` is one of its classes."""
        found = []
        for child in self.children:
            if isinstance(child, Element):
                if child._is(tag, attributes):
                    found.append(child)
                found += child.all(tag, **attributes)
        return found

    def find(self, tag: str = "", **attributes: str) -> "Element":
        (found,) = self.all(tag, **attributes)
        return found

    def _is(self, tag: str, attributes: dict[str, str]) -> bool:
        given = dict(attributes)
        wanted_class = given.pop("class_", None)
        if wanted_class is not None and wanted_class not in (self.attributes.get("class") or "").split():
            return False
        if any(self.attributes.get(key) != value for key, value in given.items()):
            return False
        return tag in ("", self.tag)


class _Reader(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.root = self.at = Element("", {})

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({name for name, _ in attrs}) == len(attrs), f"<{tag}> has an attribute twice"
        element = Element(tag, dict(attrs), self.at)
        self.at.children.append(element)
        if tag not in VOID:
            self.at = element

    def handle_endtag(self, tag: str) -> None:
        assert self.at.tag == tag, f"</{tag}> closes <{self.at.tag}>"
        assert self.at.parent is not None
        self.at = self.at.parent

    def handle_data(self, data: str) -> None:
        self.at.children.append(data)

    def handle_comment(self, data: str) -> None:
        raise AssertionError(f"a comment: {data}")

    def unknown_decl(self, data: str) -> None:
        raise AssertionError(f"a declaration: {data}")


def parsed(text: str) -> Element:
    reader = _Reader()
    reader.feed(text)
    reader.close()
    assert reader.at is reader.root, f"<{reader.at.tag}> is not closed"
    return reader.root
