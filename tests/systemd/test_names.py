"""Unit names and their object paths, as measured on systemd 252."""

from pathlib import Path

import pytest

from llmhost.sources.systemd.names import is_glob, is_service, is_unit_name, matches, unit_name, unit_path, wider
from llmhost.sources.systemd.units.reading import alias_target

UNITS = "/org/freedesktop/systemd1/unit/"


@pytest.mark.parametrize(
    ("name", "escaped"),
    [
        ("vllm.service", "vllm_2eservice"),
        ("my_app.service", "my_5fapp_2eservice"),
        ("foo@b.service", "foo_40b_2eservice"),
        ("vllm@Qwen-Qwen3\\x2d8B.service", "vllm_40Qwen_2dQwen3_5cx2d8B_2eservice"),
        ("7zip.service", "_37zip_2eservice"),
    ],
)
def test_a_name_becomes_the_path_that_systemd_makes_of_it_and_comes_back(name: str, escaped: str) -> None:
    assert unit_path(name) == UNITS + escaped
    assert unit_name(UNITS + escaped) == name


def test_a_path_that_is_no_units_has_no_name() -> None:
    assert unit_name("/org/freedesktop/systemd1/job/12") == ""


@pytest.mark.parametrize(
    ("name", "valid", "service"),
    [
        ("vllm.service", True, True),
        ("vllm@Qwen-Qwen3\\x2d8B.service", True, True),
        ("vllm@a.service", True, True),
        ("vllm@.service", True, False),  # a template
        ("vllm.socket", True, False),
        ("vllm", False, False),
        ("bad name.service", False, False),
        ("vllm@*.service", False, False),
        ("", False, False),
        (".service", False, False),
        ("@a.service", False, False),
        ("vllm.service\n", False, False),
        ("ü.service", False, False),
        ("a" * 248 + ".service", False, False),
    ],
)
def test_only_valid_names_are_asked_about(name: str, *, valid: bool, service: bool) -> None:
    assert is_unit_name(name) is valid
    assert is_service(name) is service


def test_patterns_match_as_pythons_do() -> None:
    assert matches("vllm@Qwen-Qwen3\\x2d8B.service", ["vllm@*.service"])
    assert matches("vllm@Qwen-Qwen3\\x2d8B.service", ["vllm@*\\x2d8B.service"])  # a backslash is itself
    assert not matches("VLLM.service", ["vllm*"])
    assert matches("vllm-b.service", ["vllm-[!a].service"])
    assert not matches("vllm-b.service", ["vllm-[^a].service"])
    assert is_glob("vllm-[ab].service")
    assert not is_glob("vllm@Qwen-Qwen3\\x2d8B.service")


@pytest.mark.parametrize(
    ("glob", "wide"),
    [
        ("vllm-*.service", "vllm-*.service"),
        ("vllm@*\\x2d?.service", "vllm@*?x2d?.service"),
        ("vllm-[ab].service", "vllm-?.service"),
        ("vllm-[^a\\].service", "vllm-?.service"),
        ("vllm-[]a]*[!]].service", "vllm-?*?.service"),
    ],
)
def test_a_glob_for_systemd_has_no_sets_and_backslashes(glob: str, wide: str) -> None:
    assert wider(glob) == wide


def test_an_alias_stands_for_the_unit_at_the_end_of_its_links(tmp_path: Path) -> None:
    units = tmp_path / "etc/systemd/system"
    units.mkdir(parents=True)
    (units / "real.service").write_text("[Service]\n")
    (units / "alias.service").symlink_to("/usr/lib/systemd/system/real.service")
    (units / "second.service").symlink_to("alias.service")
    (units / "linked.service").symlink_to("/opt/linked.service")
    (units / "model@a.service").symlink_to("model@.service")
    (units / "masked.service").symlink_to("/dev/null")
    (units / "loop1.service").symlink_to("loop2.service")
    (units / "loop2.service").symlink_to("loop1.service")
    assert alias_target("alias.service", tmp_path) == "real.service"
    assert alias_target("second.service", tmp_path) == "real.service"
    for itself in ("real.service", "linked.service", "model@a.service", "masked.service", "absent.service"):
        assert alias_target(itself, tmp_path) == itself
    assert alias_target("loop1.service", tmp_path) in {"loop1.service", "loop2.service"}
