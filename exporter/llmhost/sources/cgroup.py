"""The unit or container of a process, by its cgroup path alone (docs/concepts.md: Unit of a process).

systemd gives every unit a cgroup named after it, below the cgroups of its slices; cgroups(7) describes
/proc/PID/cgroup. The walk goes from the root and stops at the first service or scope: what runs below is the unit's own
business, so a systemd inside a container cannot pose as the host's.
"""

import re
from functools import lru_cache
from pathlib import Path

from llmhost.model.ids import SYSTEM_MANAGER, UnitId
from llmhost.model.process import Home, Placement

NOWHERE = Placement(Home.NONE)

_USER_MANAGER = re.compile(r"user@(\d+)\.service")
# unit-name.c: letters, digits and :-_.\ with one @ at most, of which a template's stands before the suffix.
_UNIT = re.compile(r"[\w:.\\-]+(?:@[\w:.\\@-]+)?\.(service|scope)", re.ASCII)
_SLICE = re.compile(r"[\w:.\\-]+\.slice", re.ASCII)
# Runtimes name a container's scope or cgroup after its 256-bit id: docker-, libpod-, cri-containerd-, crio-, …
_CONTAINER_SCOPE = re.compile(r"(?:.*-)?([0-9a-f]{64})\.scope")
_MACHINE_SCOPE = re.compile(r"machine-(.+)\.scope")  # systemd-machined: nspawn, libvirt
_SESSION_SCOPE = re.compile(r"session-c?\d+\.scope")  # systemd-logind's; "c" where audit has no session
_CONTAINER_ID = re.compile(r"(?:.*[-:])?([0-9a-f]{64})")
_LXC = re.compile(r"/lxc(?:\.payload[./]|/)([^/]+)")
_POD = re.compile(r"/kubepods(?:[./-]|$)")
_DELETED = " (deleted)"  # the kernel's mark behind a v2 path whose cgroup was removed


def read_own_placement(procfs: Path) -> Placement:
    """Return the unit or container that this process is in. Raises OSError."""
    return parse_cgroup((procfs / "self/cgroup").read_text())


@lru_cache(maxsize=4096)  # a host has far fewer cgroups than processes, and they repeat at every read
def parse_cgroup(text: str) -> Placement:
    """Read a /proc/PID/cgroup. On hybrid hosts the v1 `name=systemd` line goes first, then v2's `0::`.

    A container runtime on a hybrid host may leave the v2 line at its own service, and systemd keeps both equal. Where
    neither names a place (cgroupfs driver without `name=systemd`), any other v1 line may still show a container.
    """
    lines = (line.split(":", 2) for line in text.split("\n"))  # not splitlines(): the kernel keeps only \n out of names
    paths = {line[1]: line[2] for line in lines if len(line) == 3}  # noqa: PLR2004  # hierarchy, controllers, path
    nowhere = NOWHERE
    for controllers in ("name=systemd", ""):
        placement = parse_cgroup_path(paths.get(controllers, ""))
        if placement.home is not Home.NONE:
            return placement
        nowhere = placement if placement.cgroup else nowhere
    for path in paths.values():
        placement = parse_cgroup_path(path)
        if placement.home is Home.CONTAINER:
            return placement
    return nowhere


def parse_cgroup_path(path: str) -> Placement:
    r"""Walk one path. Names stay as systemd spells them (`vllm@Qwen-Qwen3\x2d8B.service`).

    Directly in user@UID.service is nowhere: that unit only carries the user's manager and its units.
    """
    components = path.removesuffix(_DELETED).strip("/").split("/")
    if ".." in components:
        return NOWHERE  # outside of the cgroup namespace that we see it from
    manager = SYSTEM_MANAGER
    for position, component in enumerate(components):
        name = component.removeprefix("_")  # cgroup-util.c, cg_unescape
        if _SLICE.fullmatch(name):
            continue
        unit = _UNIT.fullmatch(name)
        if unit is None:
            return _foreign("/" + "/".join(components[position:])) if component else NOWHERE
        if unit[1] == "scope":
            return _scope(UnitId(name, manager))
        user = _USER_MANAGER.fullmatch(name)
        if user is None or manager != SYSTEM_MANAGER:
            return Placement(Home.SERVICE, UnitId(name, manager))
        manager = f"user@{user[1]}"
    return NOWHERE


def _scope(scope: UnitId) -> Placement:
    """Tell a container and a person's session from any other scope, which is as much a unit as a service is."""
    container = _CONTAINER_SCOPE.fullmatch(scope.name) or _MACHINE_SCOPE.fullmatch(scope.name)
    if container:
        return Placement(Home.CONTAINER, container_id=container[1])
    of_system = scope.manager == SYSTEM_MANAGER  # logind's sessions are; in a user's manager init.scope is that itself
    if _SESSION_SCOPE.fullmatch(scope.name) if of_system else scope.name == "init.scope":
        return Placement(Home.SESSION)
    return Placement(Home.SCOPE, scope=scope)


def _foreign(path: str) -> Placement:
    """Place a cgroup that systemd did not make: a container's, of a runtime that makes its own, or of no known kind."""
    for component in path.split("/"):
        container = _CONTAINER_ID.fullmatch(component)
        if container:
            return Placement(Home.CONTAINER, container_id=container[1])
    lxc = _LXC.match(path)
    if lxc:
        return Placement(Home.CONTAINER, container_id=lxc[1])
    return Placement(Home.CONTAINER) if _POD.match(path) else Placement(Home.NONE, cgroup=path)
