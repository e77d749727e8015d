"""The package keeps the rules of docs/architecture.md, and the checker finds violations."""

from collections.abc import Mapping
from pathlib import Path

import pytest
from tests.architecture.rules import MAY_IMPORT, violations

ROOT = Path(__file__).parents[2]
SOURCE_ROOT = ROOT / "exporter"

# A small package that breaks no rule; each mutation below adds or replaces one module.
CLEAN: Mapping[str, str] = {
    "llmhost": '__version__ = "1"\n',
    "llmhost.model": "",
    "llmhost.model.gpu": "from dataclasses import dataclass\n",
    "llmhost.config": "",
    "llmhost.config.schema": "",
    "llmhost.config.load": "import yaml\nfrom llmhost.config.schema import Config\n",
    "llmhost.sources": "",
    "llmhost.sources.base": "from llmhost.model.gpu import Gpu\n",
    "llmhost.sources.nvml": "import subprocess\nfrom llmhost.sources.base import SourceError\n",
    "llmhost.sources.nvml.child.worker": "import pynvml\n",
    "llmhost.sources.systemd": "import asyncio\n",
    "llmhost.sources.systemd.bus": "from dbus_next import Message\nfrom . import wire\nfrom .wire import frame\n",
    "llmhost.sources.systemd.wire": "",
    "llmhost.collect": "",
    "llmhost.collect.worker": "import threading, time\nfrom llmhost.sources.base import Source\n",
    "llmhost.derive": "",
    "llmhost.derive.facts": (
        "from pathlib import PurePosixPath\nfrom collections.abc import Mapping\n"
        "from llmhost.config.schema import Policy\nROLES: Mapping[str, int] = {'a': 1}\nNAMES = ('a', 'b')\n"
    ),
    "llmhost.metrics": "",
    "llmhost.metrics.families": "from llmhost import __version__\nfrom llmhost.derive import facts\n",
    "llmhost.metrics.collector": "import prometheus_client\n",
    "llmhost.serve": "",
    "llmhost.serve.http": "import http.server\nfrom ..model.listen import parse_listen\n",
    "llmhost.cli": "",
    "llmhost.assemble.exporter": "from llmhost.sources import nvml\n",
    "llmhost.assemble": "",
    "llmhost.model.listen": "",
    "llmhost.cli.main": "from llmhost.assemble import exporter\nfrom llmhost.sources.base import SourceError\n",
    "llmhost.__main__": "from llmhost.cli.main import main\n",
}

MUTATIONS = [
    # the folder table
    ("llmhost.model.x", "from llmhost.config.schema import Policy", "model may import nothing"),
    ("llmhost.config.x", "import llmhost.derive.facts", "config may import model"),
    ("llmhost.sources.x", "from llmhost.config import schema", "sources may import model"),
    ("llmhost.collect.x", "from llmhost.sources.nvml.source import Nvml", "imports llmhost.sources.nvml"),
    ("llmhost.collect.x", "from llmhost.sources import nvml", "imports llmhost.sources.nvml"),
    ("llmhost.collect.x", "from llmhost.metrics.page import Page", "imports llmhost.metrics.page"),
    ("llmhost.derive.x", "from llmhost.metrics.families import families", "derive may import"),
    ("llmhost.derive.x", "from llmhost.config import load", "imports llmhost.config.load"),
    ("llmhost.views.x", "from llmhost.metrics import families", "views may import"),
    ("llmhost.serve.x", "from llmhost.model.gpu import Gpu", "serve may import model.listen"),
    ("llmhost.serve.x", "from llmhost import collect", "imports llmhost.collect"),
    ("llmhost.act.x", "import llmhost.sources.base", "act may import"),
    ("llmhost", "from llmhost.model.gpu import Gpu", "llmhost may import nothing"),
    ("llmhost.extra.x", "", "no folder extra"),
    # wherever the import stands, and however it is spelt
    ("llmhost.derive.x", "def f():\n    from llmhost.collect import worker", "imports llmhost.collect.worker"),
    ("llmhost.derive.x", "from ..collect.worker import Worker", "imports llmhost.collect.worker"),
    ("llmhost.derive", "from ..collect import worker", "may import"),
    ("llmhost.derive.x", "from .. import metrics", "imports llmhost.metrics"),
    (
        "llmhost.derive.x",
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from llmhost.cli.main import main",
        "nothing imports cli",
    ),
    ("llmhost.collect.x", "import importlib\nimportlib.import_module('llmhost.cli')", "computed name"),
    ("llmhost.collect.x", "from importlib import import_module", "computed name"),
    # cli
    ("llmhost.metrics.x", "from llmhost import cli", "nothing imports cli"),
    (
        "llmhost.cli.x",
        "from llmhost.sources.procfs import Procfs",
        "only the package assemble names a concrete source",
    ),
    (
        "llmhost.cli.x",
        "from llmhost.sources import systemd",
        "only the package assemble names a concrete source",
    ),
    # sole importers
    ("llmhost.sources.nvml.source", "import pynvml", "only sources.nvml.child.worker"),
    ("llmhost.sources.nvml.child.worker_too", "import pynvml", "only sources.nvml.child.worker"),
    ("llmhost.collect.x", "import asyncio.events", "only sources.systemd"),
    ("llmhost.sources.procfs", "from dbus_next.aio import MessageBus", "only sources.systemd"),
    ("llmhost.cli.x", "import prometheus_client.core", "only metrics and sources.engine.parse"),
    ("llmhost.config.schema", "import yaml", "only config.load"),
    ("llmhost.derive.x", "import psutil", "only sources"),
    ("llmhost.metrics.x", "import requests", "requests, which is no dependency"),
    ("llmhost.sources.x", "from tests.fakes import needs", "tests, which is no dependency"),
    # purity
    ("llmhost.derive.x", "import time", "imports time"),
    ("llmhost.derive.x", "from os import environ", "imports os"),
    ("llmhost.derive.x", "from pathlib import PurePath, Path", "imports pathlib"),
    ("llmhost.derive.x", "from posixpath import basename, realpath", "imports posixpath"),
    ("llmhost.decide.x", "import urllib.request", "imports urllib.request"),
    ("llmhost.views.x", "import logging", "imports logging"),
    ("llmhost.model.x", "import socket", "imports socket"),
    ("llmhost.metrics.families", "import subprocess", "imports subprocess"),
    ("llmhost.decide.x", "from datetime import datetime\ndef f():\n    return datetime.now()", "reads a clock"),
    ("llmhost.decide.x", "def f():\n    return open('/proc/1/stat')", "calls open"),
    ("llmhost.decide.x", "def f():\n    global n\n    n = 1", "changes a global"),
    ("llmhost.derive.x", "SEEN = {}", "SEEN can be changed"),
    ("llmhost.derive.x", "SEEN: dict[str, int] = dict()", "SEEN can be changed"),
    (
        "llmhost.derive.x",
        "import collections\nif True:\n    SEEN = collections.defaultdict(int)",
        "SEEN can be changed",
    ),
    ("llmhost.metrics.families", "SEEN = [n for n in range(3)]", "SEEN can be changed"),
    # names and lengths
    ("llmhost.derive.gpu_utils", "", "'utils' says nothing"),
    ("llmhost.collect.helpers", "", "'helpers' says nothing"),
    ("llmhost.cli.x", "pass\n" * 400, "401 lines"),
]


def test_the_package_breaks_no_rule() -> None:
    sources = {}
    for path in sorted(SOURCE_ROOT.rglob("*.py")):
        parts = path.relative_to(SOURCE_ROOT).with_suffix("").parts
        sources[".".join(parts[:-1] if parts[-1] == "__init__" else parts)] = path.read_text(encoding="utf-8")
    assert "llmhost.model.gpu" in sources, "the package was not found"
    found = violations(sources)
    assert not found, "\n".join(found)


def test_the_checker_finds_nothing_in_a_clean_package() -> None:
    assert violations(CLEAN) == []


@pytest.mark.parametrize(("module", "text", "finding"), MUTATIONS)
def test_the_checker_catches(module: str, text: str, finding: str) -> None:
    found = violations({**CLEAN, module: text + "\n"})
    assert len(found) == 1, found
    assert found[0].startswith(module)
    assert finding in found[0]


def test_the_folder_table_is_the_one_in_the_architecture() -> None:
    text = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    table = text.split("## Folders")[1].split("\n## ")[0]
    rows = [line.split("|")[1:-1] for line in table.splitlines() if line.startswith("| `")]
    libraries = {"stdlib", "yaml", "prometheus_client", "everything"}
    table_rows = {
        row[0].split("/")[0].strip(" `"): {what.strip() for what in row[-1].split(",")} - libraries for row in rows
    }
    assert table_rows == {**MAY_IMPORT, "cli": set()}


def test_test_files_stay_readable() -> None:
    lengths = {path: path.read_text(encoding="utf-8").count("\n") for path in (ROOT / "tests").rglob("*.py")}
    assert {str(path.relative_to(ROOT)): lines for path, lines in lengths.items() if lines > 400} == {}
