"""Trust in a path: the one place that says whether others may change what root runs or reads there.

A path is followed as the kernel does (path_resolution(7)), each symbolic link on the way hop by hop. What is met must
belong to a trusted user and be writable by nobody else. POSIX ACLs count: an ACL that lets somebody write shows as a
writable group (acl(5)). Others' mounts, NFSv4 ACLs and further members of root's group are not looked at.
"""

import contextlib
import errno
import grp
import os
import pwd
import stat
from collections import deque
from collections.abc import Iterator
from pathlib import Path
from posixpath import dirname, join

ROOT = frozenset({0})
_MOST_LINKS = 40  # as the kernel follows, path_resolution(7)
_HARDWARE = "glibc-hwcaps"  # libraries for this processor, ld.so(8)
_PACKAGES = frozenset({"site-packages", "dist-packages"})  # in sys.path themselves where they count
_ACL = "system.posix_acl_access"


def trusted_owners() -> frozenset[int]:
    """Give the users whose files we trust: root, and our own."""
    return frozenset({0, os.geteuid()})


def who_may_change(path: str | Path, owners: frozenset[int] = ROOT) -> str:
    """Say in a few words how others than `owners` may change what an absolute path leads to; "" where nobody may.

    Of a folder that means also: what is in it by name. What is not there is as safe as the folder that lacks it.
    """
    try:
        for place, found, is_last in _trail(str(path)):
            if why := _missing(place) if found is None else _weakness(place, found, owners, is_last=is_last):
                return why
    except OSError as error:
        return f"{error.filename} cannot be looked at ({error.strerror})"
    return ""


def who_may_change_files(folder: str, owners: frozenset[int] = ROOT) -> str:
    """Say who else may change a folder, or a file that is called by its name in there; "" for nobody."""
    if why := who_may_change(folder, owners):
        return why
    for entry in _entries(folder):
        if (entry.name == _HARDWARE or not _is_folder(entry)) and (why := _weakness_of(entry, owners)):
            return why
    return ""


def who_may_change_below(top: str | Path, owners: frozenset[int] = ROOT) -> str:
    """Say the same of a folder and all that is in it, at any depth and behind its links; of a file, of that alone.

    Of Python's library only the packages that it may import: not another Python's packages below it.
    """
    if why := who_may_change(top, owners):
        return why
    pending, seen = [os.path.realpath(top)], set()
    while pending:
        folder = pending.pop()
        if folder in seen:
            continue
        seen.add(folder)
        for entry in _entries(folder):
            if why := _weakness_of(entry, owners):
                return why
            if _is_folder(entry) and entry.name not in _PACKAGES:
                pending.append(os.path.realpath(entry.path))
    return ""


def _entries(folder: str) -> list[os.DirEntry[str]]:
    try:
        return list(os.scandir(folder))
    except OSError:  # it is a file, or is not there, and its own folder has been looked at
        return []


def _is_folder(entry: os.DirEntry[str]) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads to itself, or to what cannot be looked at
        return False


def _weakness_of(entry: os.DirEntry[str], owners: frozenset[int]) -> str:
    """Say who else may change an entry of a folder that they may not change."""
    try:
        found = entry.stat(follow_symlinks=False)
    except FileNotFoundError:
        return ""
    why = _weakness(entry.path, found, owners, is_last=True)
    if why or not stat.S_ISLNK(found.st_mode):
        return why
    is_sibling = "/" not in os.fspath(Path(entry.path).readlink()) and not _is_folder(entry)
    return "" if is_sibling else who_may_change(entry.path, owners)  # a sibling is an entry itself


def hops(path: str | Path) -> Iterator[Path]:
    """Yield the path, and where each symbolic link at its end leads: python, python3, /usr/bin/python3."""
    place = Path(path)
    for _ in range(_MOST_LINKS):
        yield place
        try:
            place = place.parent / place.readlink()
        except OSError:
            return


def is_closed(path: str | Path) -> bool:
    """Tell if a folder on the way lets only its owner and group in, so that others cannot reach what is behind it."""
    with contextlib.suppress(OSError):
        return any(
            found is not None and stat.S_ISDIR(found.st_mode) and not found.st_mode & stat.S_IXOTH
            for _, found, _ in _trail(str(path))
        )
    return False


def emptied_folder(path: str | Path) -> str:
    """Name the folder on the way in which everybody may make what is not there, such as /tmp; "" for none.

    Nobody may rename another's file there. But such folders are emptied now and then, at boot at the latest
    (tmpfiles.d(5)), and then whoever comes first may make what was there.
    """
    with contextlib.suppress(OSError):
        for place, found, is_last in _trail(str(path)):
            if found is not None and not is_last and _is_sticky(found):
                return place
    return ""


def _trail(path: str) -> Iterator[tuple[str, os.stat_result | None, bool]]:
    """Yield all that is met on the way, as lstat(2) has it, and whether it is what the path leads to.

    The last one is None where it is missing. Raises OSError.
    """
    if not path.startswith("/"):
        raise OSError(errno.EINVAL, "it is no absolute path", path)
    pending, place, links = deque(_parts(path)), "/", 0
    yield place, os.lstat(place), not pending
    while pending:
        part = pending.popleft()
        here = dirname(place) if part == ".." else join(place, part)
        try:
            found = os.lstat(here)
        except (FileNotFoundError, NotADirectoryError):
            yield here, None, True
            return
        is_link = stat.S_ISLNK(found.st_mode)
        yield here, found, not pending and not is_link
        if not is_link:
            place = here
            continue
        links += 1
        if links > _MOST_LINKS:
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
        target = str(Path(here).readlink())
        place = "/" if target.startswith("/") else place
        pending.extendleft(reversed(_parts(target)))
        if not pending:
            yield place, os.lstat(place), True


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in {"", "."}]


def _missing(place: str) -> str:
    folder = dirname(place)
    return f"{place} is missing, and everybody may make it" if _is_sticky(os.lstat(folder)) else ""


def _weakness(place: str, found: os.stat_result, owners: frozenset[int], *, is_last: bool) -> str:
    if found.st_uid not in owners:
        return f"{place} belongs to {_user(found.st_uid)}"
    mode = found.st_mode
    if not (stat.S_ISDIR(mode) or stat.S_ISREG(mode) or stat.S_ISFIFO(mode)):
        return ""  # a link's mode means nothing, a socket's lets others connect, and a device is the kernel's
    if not is_last and _is_sticky(found):
        return ""  # nobody may rename another's file in it
    if mode & stat.S_IWOTH:
        return f"{place} is writable by everybody"
    if mode & stat.S_IWGRP and _has_acl(place):
        return f"{place} is writable by others, by its ACL"
    if mode & stat.S_IWGRP and found.st_gid != 0:
        return f"{place} is writable by {_group(found.st_gid)}"
    return ""


def _is_sticky(found: os.stat_result) -> bool:
    return stat.S_ISDIR(found.st_mode) and bool(found.st_mode & stat.S_ISVTX and found.st_mode & 0o022)


def _has_acl(place: str) -> bool:
    try:
        os.getxattr(place, _ACL, follow_symlinks=False)
    except OSError:
        return False
    return True


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def _group(gid: int) -> str:
    try:
        return f"group {grp.getgrgid(gid).gr_name}"
    except KeyError:
        return f"group {gid}"
