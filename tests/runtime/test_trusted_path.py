"""Who may change what a path leads to: real files of root's and of another user's, as root."""

import os
import subprocess
from pathlib import Path

import pytest
from tests.fakes.needs import needs_root

from llmhost.runtime.trusted_path import (
    emptied_folder,
    hops,
    is_closed,
    who_may_change,
    who_may_change_below,
    who_may_change_files,
)

NOBODY = 65534


@pytest.fixture
def top(tmp_path: Path) -> Path:
    """Give a folder of root's with a file in a folder: sub/file."""
    needs_root()
    (tmp_path / "sub").mkdir(mode=0o755)
    (tmp_path / "sub" / "file").write_text("x")
    return tmp_path


def sh(folder: Path, script: str) -> None:
    subprocess.run(["sh", "-ec", script], cwd=folder, check=True)


# What is done in the folder.
SAFE = {
    "all is root's": "true",
    "a link of root's leads to a folder above": "mv sub/file file; ln -s ../file sub/file",
    "it is missing in root's folder": "rm sub/file",
    "its folder is missing as well": "rm -r sub",
    "root's group may write": "chmod 775 sub",
    "a sticky folder is on the way": "chmod 1777 sub",
}
UNSAFE = {
    "the file is another's": ("chown nobody sub/file", "/sub/file belongs to nobody"),
    "the folder is": ("chown nobody sub", "/sub belongs to nobody"),
    "everybody may write to the file": ("chmod 646 sub/file", "/sub/file is writable by everybody"),
    "everybody may write to the folder": ("chmod 757 sub", "/sub is writable by everybody"),
    "a group may write to the folder": ("chgrp 65534 sub; chmod 775 sub", "/sub is writable by group nogroup"),
    "a link on the way is another's": ("mv sub real; ln -s real sub; chown -h nobody sub", "/sub belongs to nobody"),
    "a link leads through another's folder": (
        "mkdir home; ln -s /etc/passwd home/x; chown nobody home; ln -sf ../home/x sub/file",
        "/home belongs to nobody",
    ),
    "it is missing in a sticky folder": (
        "rm sub/file; chmod 1777 sub",
        "/sub/file is missing, and everybody may make it",
    ),
    "a link leads to itself": (
        "ln -sf file sub/file",
        "/sub/file cannot be looked at (Too many levels of symbolic links)",
    ),
}


@pytest.mark.parametrize("case", SAFE)
def test_what_is_roots_alone_is_safe(top: Path, case: str) -> None:
    sh(top, SAFE[case])
    assert who_may_change(top / "sub/file") == ""


@pytest.mark.parametrize("case", UNSAFE)
def test_what_another_user_may_change_is_found_wherever_it_is_on_the_way(top: Path, case: str) -> None:
    script, why = UNSAFE[case]
    sh(top, script)
    assert who_may_change(top / "sub/file") == f"{top}{why}"


def test_a_folder_that_is_all_that_is_meant_may_not_be_sticky_either(top: Path) -> None:
    (top / "sub").chmod(0o1777)
    assert who_may_change(top / "sub") == f"{top}/sub is writable by everybody"


def test_what_an_acl_lets_another_write_is_found(top: Path) -> None:
    # acl(5) as Linux stores it: version 2; owner rwx, user 65534 rwx, group r-x, mask rwx, others r-x
    entries = ((0x01, 7, -1), (0x02, 7, NOBODY), (0x04, 5, -1), (0x10, 7, -1), (0x20, 5, -1))
    acl = b"\x02\0\0\0" + b"".join(
        tag.to_bytes(2, "little") + mode.to_bytes(2, "little") + (who & 0xFFFFFFFF).to_bytes(4, "little")
        for tag, mode, who in entries
    )
    try:
        os.setxattr(top / "sub", "system.posix_acl_access", acl)
    except OSError as error:
        pytest.skip(f"no ACLs here: {error.strerror}")
    touched = subprocess.run(["touch", f"{top}/sub/made"], user=NOBODY, group=NOBODY, extra_groups=[], check=False)
    may = touched.returncode == 0 or is_closed(top)
    assert may
    assert who_may_change(top / "sub/file") == f"{top}/sub is writable by others, by its ACL"


def test_sockets_and_devices_are_judged_by_their_folders() -> None:
    needs_root()
    assert who_may_change("/dev/null") == ""
    assert who_may_change("sub/file") == "sub/file cannot be looked at (it is no absolute path)"


def test_everything_below_a_folder_counts_also_behind_links(top: Path) -> None:
    sh(top, "mkdir packages; ln -s ../sub packages/sub")
    assert who_may_change_below(top / "packages") == ""
    sh(top, "mkdir sub/deep; touch sub/deep/module.py; chown nobody sub/deep/module.py")
    assert who_may_change_below(top / "packages") == f"{top}/sub/deep/module.py belongs to nobody"
    assert who_may_change_below(top / "sub/file") == ""


def test_a_link_to_itself_in_a_folder_is_no_fault_of_ours(top: Path) -> None:
    sh(top, "ln -s loop sub/loop")
    assert who_may_change_files(str(top / "sub")) == who_may_change_below(top / "sub") == ""  # root's, and nobody's way
    sh(top, "ln -s ../sub/loop sub/other")
    why = f"{top}/sub/other cannot be looked at (Too many levels of symbolic links)"
    assert who_may_change_files(str(top / "sub")) == who_may_change_below(top / "sub") == why


def test_links_at_the_end_of_a_path_are_followed_one_by_one(top: Path) -> None:
    sh(top, "ln -s python3 python; ln -s $PWD/sub/file python3")
    assert list(hops(top / "python")) == [top / "python", top / "python3", top / "sub/file"]


def test_a_folder_that_is_emptied_now_and_then_is_named(top: Path) -> None:
    assert emptied_folder("/usr/bin/env") == ""
    (top / "sub").chmod(0o1777)
    assert emptied_folder("/tmp/x") == "/tmp"
    assert is_closed(top / "sub/file") == any(
        not folder.stat().st_mode & 0o001 for folder in (top / "sub").resolve().parents
    )
