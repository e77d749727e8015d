"""Variables by which glibc, its loader, a shell or Python find files before the guard can drop them.

Unlike with setuid programs, nothing keeps root's programs from going by them. glibc lists them for those programs in
sysdeps/generic/unsecvars.h; here are all that name a place. TMPDIR is left out: nothing uses it before it is dropped.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from posixpath import join

from llmhost.runtime.trusted_path import who_may_change, who_may_change_below, who_may_change_files

# Folders in which libraries, converters and locales are looked for: what is in them counts.
_FOLDERS: Mapping[str, Callable[[str], str]] = {
    "LD_LIBRARY_PATH": who_may_change_files,
    "LD_ORIGIN_PATH": who_may_change_files,
    "GCONV_PATH": who_may_change_files,
    "LOCPATH": who_may_change_below,
}
# Files, and folders of which one file is read or written.
_PLACES = frozenset(
    (
        *("BASH_ENV", "ENV", "GETCONF_DIR", "HOSTALIASES", "MALLOC_TRACE"),
        *("NLSPATH", "RESOLV_HOST_CONF", "TZ", "TZDIR"),
        *("PYTHONHOME", "PYTHONPATH", "PYTHONPLATLIBDIR", "PYTHONPYCACHEPREFIX", "PYTHONUSERBASE"),
    )
)


def changeable_variables(
    environment: Iterable[tuple[str, str]], working_directory: str, *, isolated: bool = True
) -> Iterator[str]:
    """Yield NAME=VALUE of each that leads to what others than root may change, and what that is.

    `isolated` Python (-I) does not go by PYTHON*.
    """
    for name, value in environment:
        if isolated and name.startswith("PYTHON"):
            continue
        if why := _why(name, value, working_directory):
            yield f"{name}={value}: {why}"


def _why(name: str, value: str, working_directory: str) -> str:
    is_place = name in _FOLDERS or name in _PLACES
    if not value or not (is_place or name.startswith("LD_")):
        return ""
    for part in _parts(name, value):
        if "$" in part:
            return f"nobody can tell where {part} leads"
        place = part.split("%")[0]  # NLSPATH has names to be filled in
        if "/" not in place and (not is_place or name == "TZ"):
            continue  # a library that is looked for in folders, a time zone, a number
        path = join(working_directory, place)  # which is the place itself where that begins with a slash
        if why := _FOLDERS.get(name, who_may_change)(path):
            return why
    return ""


def _parts(name: str, value: str) -> list[str]:
    """Split as its reader does (ld.so(8), tzset(3)); an empty part is the working directory."""
    if name == "TZ":
        return [value.removeprefix(":")]
    if name == "LD_PRELOAD":
        value = value.replace(" ", ":")
    return (value.replace(";", ":") if name.startswith("LD_") else value).split(":")
