"""`llmhost release` for people: the state of the driver pause, and other users of the driver. Pure."""

from collections.abc import Iterator

from llmhost.model.driver_user import DriverUser, DriverUsers

_NAMES_SHOWN = 8


def release_text(found: DriverUsers, *, until: str) -> str:
    """Write lines of text. `until` is a time of day."""
    return "".join(f"{line}\n" for line in (*_own_processes(found, until), _other_users(found)))


def _own_processes(found: DriverUsers, until: str) -> Iterator[str]:
    by_pid = {user.pid: user for user in found.users}
    children = [user for user in found.users if user.nvml_child]
    for child in children:
        yield _running_child(child, by_pid.get(child.ppid))
    if children:
        yield f"what else llmhost runs keeps off the driver until {until}; to end that: llmhost release --end"
        return
    exporters = [str(user.pid) for user in found.users if user.command == "serve"]
    if exporters:
        subject = (
            f"the exporter (pid {exporters[0]}) has" if len(exporters) == 1 else f"exporters {_named(exporters)} have"
        )
        yield f"{subject} let go of the driver until {until}; to end that: llmhost release --end"
    else:
        yield f"no exporter is to be seen; one that starts before {until} keeps off the driver until then"


def _running_child(child: DriverUser, parent: DriverUser | None) -> str:
    of = f" of llmhost {parent.command} (pid {parent.pid})" if parent is not None and parent.command else ""
    if child.state == "D":
        why = "it hangs in the driver and does not die before its call comes back"
    elif parent is not None and parent.command == "guard":
        why = "a guard asks the driver until its service may start"
    elif not of:
        why = "what started it is gone or cannot be seen"
    else:
        why = "it has not been let go of: is its --run-dir another, or is it too old to know of this?"
    return f"NVML child {child.pid}{of} still runs: {why}"


def _other_users(found: DriverUsers) -> str:
    names = [f"{user.comm} {user.pid}" for user in found.users if user.has_open and not user.nvml_child]
    blind = f", of those that may be looked at ({found.unseen} may not)" if found.unseen else ""
    if not names:
        return f"no other process has /dev/nvidia* open{blind}"
    return f"/dev/nvidia* is open in: {_named(names)}{blind}"


def _named(names: list[str]) -> str:
    more = len(names) - _NAMES_SHOWN
    return ", ".join(names[:_NAMES_SHOWN]) + (f" and {more} more" if more > 0 else "")
