from pathlib import Path

import pytest

from llmhost.model.reading import Cause
from llmhost.sources.nvml.child.session import parse_mapped_library, read_library_versions, version_of
from llmhost.sources.nvml.codes import cause_of, described

MAPS = """\
55d0c0a00000-55d0c0a01000 r--p 00000000 08:01 131 /usr/bin/python3.11
7f1a00000000-7f1a00021000 rw-p 00000000 00:00 0
7f1a10000000-7f1a10200000 r-xp 00000000 08:01 257 {library}
7ffc00000000-7ffc00021000 rw-p 00000000 00:00 0 [stack]
"""
DEBIAN = "/usr/lib/x86_64-linux-gnu/libnvidia-ml.so.570.86.16"


@pytest.mark.parametrize(
    ("line", "library"),
    [
        (DEBIAN, DEBIAN),
        (f"{DEBIAN} (deleted)", DEBIAN),
        ("/usr/lib/wsl/lib/libnvidia-ml.so.1", "/usr/lib/wsl/lib/libnvidia-ml.so.1"),
        ("/opt/my drivers/libnvidia-ml.so.580.95.05", "/opt/my drivers/libnvidia-ml.so.580.95.05"),
        ("/usr/lib/libc.so.6", None),
    ],
)
def test_the_loaded_library_is_found_in_maps(line: str, library: str | None) -> None:
    assert parse_mapped_library(MAPS.format(library=line)) == (None if library is None else Path(library))


@pytest.mark.parametrize(
    ("name", "version"),
    [
        ("libnvidia-ml.so.570.86.16", "570.86.16"),
        ("libnvidia-ml.so.580.95", "580.95"),
        ("libnvidia-ml.so.1", None),
        ("libnvidia-ml.so", None),
    ],
)
def test_the_version_is_in_the_files_name(name: str, version: str | None) -> None:
    assert version_of(Path("/usr/lib") / name) == version


def test_what_the_next_process_will_load_is_where_the_link_points(tmp_path: Path) -> None:
    loaded = tmp_path / "libnvidia-ml.so.570.86.16"
    maps = tmp_path / "maps"
    maps.write_text(MAPS.format(library=f"{loaded} (deleted)"))
    assert read_library_versions(maps) == ("570.86.16", None)  # nothing there
    (tmp_path / "libnvidia-ml.so.580.95.05").touch()
    (tmp_path / "libnvidia-ml.so.1").symlink_to("libnvidia-ml.so.580.95.05")
    assert read_library_versions(maps) == ("570.86.16", "580.95.05")
    maps.write_text(MAPS.format(library="/usr/lib/libc.so.6"))
    assert read_library_versions(maps) == (None, None)
    assert read_library_versions(tmp_path / "absent") == (None, None)


@pytest.mark.parametrize(
    ("code", "cause", "words"),
    [
        (3, Cause.NOT_SUPPORTED, "NOT_SUPPORTED (3)"),
        (4, Cause.NO_PERMISSION, "NO_PERMISSION (4)"),
        (9, Cause.NO_DRIVER, "DRIVER_NOT_LOADED (9)"),
        (12, Cause.NO_LIBRARY, "LIBRARY_NOT_FOUND (12)"),
        (15, Cause.LOST, "GPU_IS_LOST (15)"),
        (16, Cause.RESET_REQUIRED, "RESET_REQUIRED (16)"),
        (17, Cause.NO_PERMISSION, "OPERATING_SYSTEM (17)"),
        (18, Cause.DRIVER_MISMATCH, "LIB_RM_VERSION_MISMATCH (18)"),
        (29, Cause.UNKNOWN, "error (29)"),
        (999, Cause.UNKNOWN, "UNKNOWN (999)"),
    ],
)
def test_each_code_has_a_cause_and_its_name(code: int, cause: Cause, words: str) -> None:
    assert (cause_of(code), described("nvmlInitWithFlags", code)) == (cause, f"nvmlInitWithFlags: {words}")
