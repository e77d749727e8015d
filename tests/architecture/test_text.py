"""Promises of the repository's texts: commands that exist, a changelog that can be read, no place but this one."""

import re
import subprocess
import sys

from tests.architecture.checkout import ROOT, files

# Spelt in pieces, so that this file does not break its own rule.
HOSTS = ("pypi" + ".org", "pythonhosted" + ".org", "npmjs" + ".", "deb.debian" + ".org", "archive.ubuntu" + ".com")
PLACES = ("/" + "work/", "/" + "root/", "/" + "home/")
# A test may make up a path of a person's home; nothing that ships may.
MADE_UP = re.compile(r"^(tests/(?!setup/)|docs/)")


def texts() -> dict[str, str]:
    found = {}
    for path in files():
        try:
            found[path] = (ROOT / path).read_text(encoding="utf-8")
        except UnicodeDecodeError:
            continue
    return found


def makefile_targets() -> dict[str, str]:
    """Targets with their help, "" where there is none."""
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {
        name: text.strip()
        for name, text in re.findall(r"^([a-z][a-z0-9-]*):(?:[^#\n=]*)(?:##(.*))?$", makefile, re.MULTILINE)
    }


def test_no_package_registry_is_named() -> None:
    assert [(path, host) for path, text in texts().items() for host in HOSTS if host in text] == []


def test_no_place_of_one_machine_is_named() -> None:
    named = [
        (path, place)
        for path, text in texts().items()
        for place in PLACES
        if place in text and not (place != PLACES[0] and MADE_UP.match(path))
    ]
    assert named == []


def test_every_make_target_says_what_it_does() -> None:
    targets = makefile_targets()
    assert {"help", "run", "test", "bench", "golden", "docs", "wheel"} <= targets.keys()
    assert [name for name, text in targets.items() if not text] == []
    phony = set(re.findall(r"^\.PHONY: (\S+)$", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    assert phony == targets.keys()


def test_make_help_lists_every_target() -> None:
    helped = subprocess.run(["make", "help"], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert {line.split()[0] for line in helped.splitlines()} == makefile_targets().keys()


def test_make_commands_in_the_documents_exist() -> None:
    targets = makefile_targets()
    documents = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").glob("*.md")]
    text = {
        (document.name, target)
        for document in documents
        for target in re.findall(
            r"(?:`|^\s*(?:\$ )?)make ([a-z][a-z0-9-]*)", document.read_text(encoding="utf-8"), re.MULTILINE
        )
    }
    assert ("CONTRIBUTING.md", "test") in text
    assert [where for where in text if where[1] not in targets] == []


def test_the_changelog_keeps_its_form() -> None:
    lines = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8").splitlines()
    heading = re.compile(r"^## \d+\.\d+\.\d+ / (unreleased|\d{4}-\d{2}-\d{2})$")
    entry = re.compile(r"^\* \[(CHANGE|FEATURE|ENHANCEMENT|BUGFIX|SECURITY)\] [a-z][a-z ,/-]*: [^ ].*\.$")
    wrong = [line for line in lines[1:] if line and not heading.match(line) and not entry.match(line)]
    assert lines[0] == "# Changelog"
    assert wrong == []
    first = next(line for line in lines if line.startswith("## "))
    version = re.search(r'__version__ = "(.+)"', (ROOT / "exporter/llmhost/__init__.py").read_text(encoding="utf-8"))
    assert version is not None
    assert first.split()[1] == version[1]


def test_tests_that_want_a_gpu_are_collected_and_off_by_default() -> None:
    def collected(*arguments: str) -> str:
        command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-p", "no:cacheprovider", *arguments]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300).stdout

    wanting = [line for line in collected("-m", "gpu").splitlines() if "::" in line]
    assert wanting, "there is no test marked gpu"
    by_default = collected(*sorted({line.partition("::")[0] for line in wanting}))
    assert "deselected" in by_default
    assert not set(wanting) & set(by_default.splitlines())
