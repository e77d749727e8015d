"""The wheel carries what an installed llmhost needs, and nothing of the tests."""

import re
import subprocess
import sys
import zipfile
from email.parser import Parser
from pathlib import PurePosixPath

import pytest
from tests.architecture.checkout import ROOT, files

ASSETS = ("alerts", "grafana", "systemd")
# What is of use only in a checkout; of the dashboards what writes them, their pictures, and what linters are told.
NOT_SHIPPED = re.compile(r"alerts/tests/.*|grafana/(.*\.py|pictures/.*|\.lint)")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    where = tmp_path_factory.mktemp("wheel")
    build = subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-index", "--no-build-isolation", ROOT],
        cwd=where,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert build.returncode == 0, build.stderr
    (path,) = where.glob("*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_carries_every_alert_dashboard_and_unit_file(wheel: zipfile.ZipFile) -> None:
    names = set(wheel.namelist())
    for folder in ASSETS:
        expected = {f"llmhost/_assets/{path}" for path in files(folder) if not NOT_SHIPPED.fullmatch(path)}
        assert {name for name in names if name.startswith(f"llmhost/_assets/{folder}/")} == expected
    assert "llmhost/_assets/alerts/llmhost.rules.yml" in names
    assert "llmhost/_assets/grafana/llmhost-host.json" in names
    assert "llmhost/_assets/grafana/provisioning/dashboards/llmhost.yml" in names
    assert [name for name in names if "_assets" in name and name.endswith((".py", ".png"))] == []


def test_the_wheel_carries_every_module_and_says_that_it_is_typed(wheel: zipfile.ZipFile) -> None:
    modules = {str(PurePosixPath(path).relative_to("exporter")) for path in files("exporter")}
    shipped = {
        name for name in wheel.namelist() if not name.startswith("llmhost/_assets/") and ".dist-info/" not in name
    }
    assert shipped == modules
    assert "llmhost/py.typed" in shipped


def test_the_wheel_carries_nothing_of_the_tests(wheel: zipfile.ZipFile) -> None:
    assert [name for name in wheel.namelist() if re.search(r"(^|[/_.])(tests?|conftest|fakes)[/_.]", name)] == []


def test_the_wheel_has_its_command_licence_and_needs(wheel: zipfile.ZipFile) -> None:
    names = wheel.namelist()
    (entry_points,) = (name for name in names if name.endswith(".dist-info/entry_points.txt"))
    (licence,) = (name for name in names if name.endswith(".dist-info/licenses/LICENSE"))
    (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
    assert wheel.read(entry_points).decode().split() == ["[console_scripts]", "llmhost", "=", "llmhost.cli.main:main"]
    assert wheel.read(licence) == (ROOT / "LICENSE").read_bytes()
    fields = Parser().parsestr(wheel.read(metadata).decode())
    assert fields["Name"] == "llmhost-exporter"
    assert fields["License-Expression"] == "Apache-2.0"
    assert fields["Requires-Python"] == ">=3.11"
    needs = [need for need in fields.get_all("Requires-Dist", []) if "extra ==" not in need]
    assert sorted(need.split(">")[0].split("=")[0] for need in needs) == [
        "dbus-next",
        "nvidia-ml-py",
        "prometheus-client",
        "psutil",
        "pyyaml",
    ]
