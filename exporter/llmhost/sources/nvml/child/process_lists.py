"""The processes that hold memory of a GPU: NVML's three lists merged.

Each process comes with its start time, which distinguishes it from the next one that gets its pid.
"""

from pathlib import Path

from llmhost.sources.nvml.child.checked_calls import NO_SUCH_CALL, CheckedCalls, Subject
from llmhost.sources.nvml.child.driver import Driver, Handle, ListedProcess
from llmhost.sources.nvml.codes import Code, NvmlCallError
from llmhost.sources.nvml.wire import WireHolder
from llmhost.sources.procfs_files import parse_stat

COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
_OTHER_CALLS = ("nvmlDeviceGetGraphicsRunningProcesses", "nvmlDeviceGetMPSComputeRunningProcesses")


def are_unchanged(procfs: Path, holders: list[WireHolder]) -> bool:
    """Tell if each process of a list is as it was when the list was read: the same one, or still none."""
    return all(read_start_ticks(procfs, holder["pid"]) == holder["start_ticks"] for holder in holders)


def read_start_ticks(procfs: Path, pid: int) -> int | None:
    """Read when a process started, in clock ticks since boot; None for a pid that /proc does not have."""
    try:
        return parse_stat((procfs / str(pid) / "stat").read_bytes()).start_ticks
    except (OSError, ValueError, IndexError):
        return None


class ProcessLists:
    def __init__(self, driver: Driver, procfs: Path, calls: CheckedCalls) -> None:
        self._driver = driver
        self._procfs = procfs
        self._calls = calls
        self._defective: set[str] = set()  # lists whose _v3 call writes other entries than nvml.h has

    def merged(self, device: Handle, subject: Subject, total_bytes: int | None) -> list[WireHolder] | NvmlCallError:
        """List a GPU's processes, each once per MIG instance: the larger of the sizes in two lists, never the sum.

        A process that draws is in the compute and in the graphics list, with the same bytes. Without the compute list
        there is no answer; the other two may be unsupported, but an error in them is an error: a list with holes would
        make memory look unattributed.
        """
        listed = self._list(COMPUTE, device, subject, total_bytes)
        if isinstance(listed, NvmlCallError):
            return listed
        entries = list(listed)
        for name in _OTHER_CALLS:
            more = self._list(name, device, subject, total_bytes)
            if not isinstance(more, NvmlCallError):
                entries += more
            elif more.code not in NO_SUCH_CALL:
                return more
        used: dict[tuple[int, int, int], int | None] = {}
        for entry in entries:
            key = (entry.pid, entry.gi, entry.ci)
            known = [size for size in (used.get(key), entry.used) if size is not None]
            used[key] = max(known, default=None)
        starts = {pid: read_start_ticks(self._procfs, pid) for pid in {pid for pid, _, _ in used}}
        return [
            WireHolder(pid=pid, gi=gi, ci=ci, used=size, start_ticks=starts[pid])
            for (pid, gi, ci), size in used.items()
        ]

    def _list(
        self, name: str, device: Handle, subject: Subject, total_bytes: int | None
    ) -> list[ListedProcess] | NvmlCallError:
        newer, older = f"{name}_v3", f"{name}_v2"
        if name not in self._defective:
            listed = self._ask(newer, device, subject)
            if isinstance(listed, NvmlCallError):
                if listed.code != Code.FUNCTION_NOT_FOUND:
                    return listed
            elif _plausible(listed, total_bytes):
                return listed
            else:
                return self._instead_of(listed, name, device, subject, total_bytes)
        return self._ask(older, device, subject)

    def _instead_of(
        self, listed: list[ListedProcess], name: str, device: Handle, subject: Subject, total_bytes: int | None
    ) -> list[ListedProcess] | NvmlCallError:
        """Settle a list that looks garbled: drivers 535.43 to 535.86 write wider entries in _v3.

        XidCount in XuehaiPan/nvitop#79.
        """
        second = self._ask(f"{name}_v2", device, subject)
        if isinstance(second, NvmlCallError):
            return NvmlCallError(f"{name}_v3", Code.NO_SENSE)
        if _plausible(second, total_bytes):
            self._defective.add(name)
            return second
        if second == listed:  # both agree, so it is strange but not garbled; pid 0 is nobody we can see
            return [entry for entry in second if entry.pid > 0]
        return NvmlCallError(f"{name}_v2", Code.NO_SENSE)

    def _ask(self, call: str, device: Handle, subject: Subject) -> list[ListedProcess] | NvmlCallError:
        return self._calls.ask(subject, call, lambda: self._driver.processes(call, device))


def _plausible(listed: list[ListedProcess], total_bytes: int | None) -> bool:
    return all(
        entry.pid > 0 and (entry.used is None or total_bytes is None or entry.used <= total_bytes) for entry in listed
    )
