"""Links of the Markdown files: to files that are there, and to headings that are."""

import re
from collections.abc import Iterator
from pathlib import PurePosixPath
from posixpath import normpath

from tests.architecture.checkout import ROOT, files

_LINK = re.compile(r"\]\(([^()\s]+)\)")
_FENCED = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


def pages() -> dict[str, str]:
    return {
        path: _FENCED.sub("", (ROOT / path).read_text(encoding="utf-8")) for path in files() if path.endswith(".md")
    }


def anchors(text: str) -> set[str]:
    """Give the headings as GitHub calls them in addresses: lower case, spaces to hyphens, no other signs."""
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in _HEADING.findall(text)}


def broken(path: str, text: str, known: dict[str, str], there: set[str]) -> Iterator[str]:
    for link in _LINK.findall(text):
        if re.match(r"[a-z]+:", link):
            continue
        file, _, anchor = link.partition("#")
        target = normpath(str(PurePosixPath(path).parent / file)) if file else path
        if target not in there and not any(name.startswith(f"{target}/") for name in there):
            yield f"{path}: {link} is not there"
        elif anchor and anchor not in anchors(known.get(target, "")):
            yield f"{path}: {link} has no such heading"


def test_links_lead_to_files_and_headings_that_are_there() -> None:
    known, there = pages(), files()
    assert sum(len(_LINK.findall(text)) for text in known.values()) > 20
    assert [fault for path, text in known.items() for fault in broken(path, text, known, there)] == []


def test_a_link_that_leads_nowhere_is_found() -> None:
    known = {"a/b.md": "# One thing: here\n", "c.md": ""}
    there = {"a/b.md", "c.md", "d/e/f.txt"}
    good = "[1](a/b.md) [2](a/b.md#one-thing-here) [3](d/e) [4](https://example.org/x#y) [5](./c.md)"
    assert list(broken("c.md", good, known, there)) == []
    bad = "[1](a/c.md) [2](a/b.md#one-thing) [3](d/f)"
    assert list(broken("c.md", bad, known, there)) == [
        "c.md: a/c.md is not there",
        "c.md: a/b.md#one-thing has no such heading",
        "c.md: d/f is not there",
    ]


def test_each_test_that_docs_security_names_is_there() -> None:
    named = re.findall(r"`([\w/]+\.py)(?:::(\w+))?`", pages()["docs/security.md"])
    assert len(named) > 30
    for file, name in named:
        assert not name or f"def {name}(" in (ROOT / "tests" / file).read_text(encoding="utf-8"), (file, name)
        assert (ROOT / "tests" / file).is_file(), file
