"""One pass over all GPUs: what is asked of which, in what order, and what an error costs.

An error in one call costs that field; a GPU that is lost costs that GPU; only errors on every GPU may cost the session.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmhost.sources.nvml.child.asking import NO_SUCH_CALL, Asking, Subject
from llmhost.sources.nvml.child.driver import Driver, Handle
from llmhost.sources.nvml.child.lists import COMPUTE, ProcessLists, are_still_there
from llmhost.sources.nvml.codes import HARMLESS, SESSION_BROKEN, Code, NvmlCallError
from llmhost.sources.nvml.wire import WireError, WireGpu, WireHolder, WireMemory

_NOT_FOR_US = frozenset({Code.NO_PERMISSION, Code.OPERATING_SYSTEM, Code.NOT_SUPPORTED})


_FABRIC_UNSUPPORTED_SECONDS = 60.0  # the fabric manager may start later, and a start of an engine waits for it


@dataclass(frozen=True, slots=True)
class Skip:
    """GPUs not to ask: those with these indexes are not touched, those with these UUIDs only as far as that tells."""

    indexes: frozenset[int] = frozenset()
    uuids: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Device:
    """A GPU or MIG instance of the last full pass: what to ask again for its memory, and what was said of it."""

    said: WireGpu
    handle: Handle | None = None
    gi: int = -1
    ci: int = -1
    listed: list[WireHolder] | None = None  # the holders as they were listed, and the memory in use just before
    used_when_listed: int | None = None
    memory_alone: bool = False  # nothing else was asked of it yet

    @property
    def subject(self) -> Subject:
        return Subject(self.said["uuid"] or "", self.said["mig_parent"])

    @property
    def used(self) -> int | None:
        memory = self.said["memory"]
        return memory["used"] if memory is not None and "total" in memory else None


class Survey:
    """Passes within one NVML session."""

    def __init__(self, driver: Driver, procfs: Path, asking: Asking, on_gpu: Callable[[str, Handle], None]) -> None:
        """`on_gpu` is told of each GPU, by its UUID, as soon as it has said who it is."""
        self._driver = driver
        self._on_gpu = on_gpu
        self._procfs = procfs
        self._asking = asking
        self._lists = ProcessLists(driver, procfs, asking)
        self._last: dict[int, list[_Device]] = {}  # by index; a MIG parent before its instances

    def look(self, listed: int, skip: Skip) -> list[WireGpu]:
        """Ask everything of every GPU."""
        self._last = {index: self._gpu(index, skip) for index in range(listed)}
        return self._said()

    def look_at_memory(self, listed: int, skip: Skip, *, alone: bool) -> list[WireGpu]:
        """Ask for memory only and say the rest again; ask everything of a GPU that does not answer that.

        `alone`: of such a GPU, and of one that is new, ask who it is, its memory and whether its fabric is ready, which
        is what a start needs, and leave the rest for later.
        """
        if len(self._last) != listed:
            self._last = {index: self._gpu(index, skip, alone=alone) for index in range(listed)}
            return self._said()
        for index, devices in self._last.items():
            said = devices[0].said
            self._driver.about(index, said["uuid"] or "")
            left_out = said["skipped"] or index in skip.indexes or said["uuid"] in skip.uuids
            due = devices[0].memory_alone and not alone
            if left_out or due or not all(self._refresh(device) for device in devices):
                self._last[index] = self._gpu(index, skip, alone=alone)
        return self._said()

    def broken(self) -> WireError | None:
        """Return what the first GPU says when every GPU that was asked says that the session is broken."""
        asked = [devices[0].said["fault"] for devices in self._last.values() if not devices[0].said["skipped"]]
        broken = [fault for fault in asked if fault is not None and fault["code"] in SESSION_BROKEN]
        return broken[0] if broken and len(broken) == len(asked) else None

    def _said(self) -> list[WireGpu]:
        return [device.said for devices in self._last.values() for device in devices]

    def _refresh(self, device: _Device) -> bool:
        """Read the memory again; False when the GPU is to be asked everything."""
        if device.handle is None or device.said["memory"] is None:
            return True
        self._asking.begin()
        try:
            device.said["memory"] = self._memory(device.handle, device.subject)
        except NvmlCallError:
            return False
        if device.listed is not None:
            device.said["holders"] = self._holders_again(device, device.listed)
        return self._asking.failed is None

    def _holders_again(self, device: _Device, listed: list[WireHolder]) -> list[WireHolder] | WireError:
        """Give a list that was read before only if it still goes with the memory that was read just now.

        Else processes that ended would hold memory that is free, and the memory of new ones would be nobody's.
        """
        if device.used == device.used_when_listed and are_still_there(self._procfs, listed):
            return listed
        return _not_listed()

    def _gpu(self, index: int, skip: Skip, *, alone: bool = False) -> list[_Device]:
        if index in skip.indexes:
            return [_Device(_blank(str(index), skipped=True))]
        self._driver.about(index)
        device = _Device(_blank(str(index)), memory_alone=alone)
        instances: list[_Device] = []
        try:
            device.handle = self._driver.handle(index)
            self._identify(device.handle, device.said)
            if device.said["uuid"] in skip.uuids:
                device.said["skipped"] = True
                device.handle = None
                return [device]
            self._asking.begin()
            instances = self._ask_memory(device.handle, device, alone=alone)
            fault = None
            if alone:  # which does not tell how the GPU fares
                self._ask_fabric(device.handle, device)
            else:
                self._ask_the_rest(device.handle, device)
                fault = self._asking.dead
        except NvmlCallError as error:
            fault = error
        if fault is not None:
            device.said["fault"] = _wire(fault)
            device.handle = None
            return [device]
        for one in (device, *instances):
            if isinstance(one.said["holders"], list):
                one.listed, one.used_when_listed = one.said["holders"], one.used
        return [device, *instances]

    def _identify(self, handle: Handle, said: WireGpu) -> None:
        """Fill in who it is. A device without a UUID (Jetson) goes by its PCI address, else by its index."""
        who = Subject(f"#{said['index']}")
        said["name"] = self._asking.optional(who, "name", lambda: self._driver.name(handle)) or ""
        said["pci_bus_id"] = self._asking.optional(who, "pci", lambda: self._driver.pci_bus_id(handle)) or ""
        try:
            uuid = self._driver.uuid(handle)
        except NvmlCallError as error:
            if error.code not in HARMLESS:
                raise
            uuid = f"PCI-{said['pci_bus_id']}" if said["pci_bus_id"] else f"INDEX-{said['index']}"
        said["uuid"] = uuid
        self._driver.about(int(said["index"]), uuid)
        self._on_gpu(uuid, handle)

    def _ask_memory(self, handle: Handle, device: _Device, *, alone: bool) -> list[_Device]:
        """Fill in memory and who holds it, and return the MIG instances. Raises NvmlCallError when the GPU is lost."""
        said, driver, asking = device.said, self._driver, self._asking
        mig = asking.ask(device.subject, "mig", lambda: driver.mig_enabled(handle))
        instances: list[_Device] = []
        if isinstance(mig, NvmlCallError) and mig.code not in HARMLESS:
            said["memory"] = said["holders"] = _wire(mig)  # the GPU's or its instances': not known
        elif mig is True:
            said["mig_parent"] = True
            instances = self._instances(handle, device, alone=alone)
        else:
            said["memory"] = self._memory(handle, device.subject)
            said["holders"] = _not_listed() if alone else self._holders(handle, device.subject, said["memory"])
        return instances

    def _ask_the_rest(self, handle: Handle, device: _Device) -> None:
        """Fill in what is neither memory nor who holds it. Raises NvmlCallError when the GPU is lost."""
        said, driver, asking, subject = device.said, self._driver, self._asking, device.subject
        said["utilization_ratio"] = asking.optional(subject, "utilization", lambda: driver.utilization_ratio(handle))
        said["temperature_celsius"] = asking.optional(subject, "heat", lambda: driver.temperature_celsius(handle))
        said["power_watts"] = asking.optional(subject, "power", lambda: driver.power_watts(handle))
        self._ask_fabric(handle, device)

    def _ask_fabric(self, handle: Handle, device: _Device) -> None:
        device.said["fabric_ready"] = self._asking.optional(
            device.subject, "fabric", lambda: self._driver.fabric_ready(handle), _FABRIC_UNSUPPORTED_SECONDS
        )

    def _memory(self, handle: Handle, subject: Subject) -> WireMemory | WireError:
        """Read by the v2 call, by v1 where the driver has no v2."""
        memory = self._asking.ask(subject, "memory v2", lambda: self._driver.memory_v2(handle))
        if isinstance(memory, NvmlCallError) and memory.code in NO_SUCH_CALL:
            memory = self._asking.ask(subject, "memory v1", lambda: self._driver.memory_v1(handle))
        if isinstance(memory, NvmlCallError):
            return _wire(memory)
        return memory if memory["total"] > 0 else WireError(call="nvmlDeviceGetMemoryInfo", code=Code.NO_SENSE)

    def _holders(
        self, handle: Handle, subject: Subject, memory: WireMemory | WireError | None
    ) -> list[WireHolder] | WireError:
        total = memory["total"] if memory is not None and "total" in memory else None
        listed = self._lists.merged(handle, subject, total)
        return _wire(listed) if isinstance(listed, NvmlCallError) else listed

    def _instances(self, handle: Handle, parent: _Device, *, alone: bool) -> list[_Device]:
        """Find the MIG instances: their positions have gaps, and they come and go between any two calls."""
        driver = self._driver
        most = self._asking.ask(parent.subject, "mig most", lambda: driver.mig_most(handle))
        positions = range(0 if isinstance(most, NvmlCallError) else most)
        found = [self._instance(handle, parent, position) for position in positions]
        instances = [instance for instance in found if instance is not None]
        if alone:
            for instance in instances:
                instance.said["holders"] = _not_listed()
        else:
            self._hand_out_holders(handle, parent, instances)
        return instances

    def _instance(self, handle: Handle, parent: _Device, position: int) -> _Device | None:
        driver = self._driver
        said = _blank(f"{parent.said['index']}:{position}")
        said["pci_bus_id"], said["parent_uuid"] = parent.said["pci_bus_id"], parent.said["uuid"]
        try:
            instance = driver.mig_handle(handle, position)
            said["uuid"] = driver.uuid(instance)
            device = _Device(said, instance, driver.gpu_instance(instance), driver.compute_instance(instance))
        except NvmlCallError as error:
            if error.code in HARMLESS or error.code == Code.INVALID_ARGUMENT:  # none there, or gone meanwhile
                return None
            raise
        said["name"] = self._asking.optional(device.subject, "name", lambda: driver.name(instance)) or ""
        said["memory"] = self._memory(instance, device.subject)
        return device

    def _hand_out_holders(self, handle: Handle, parent: _Device, instances: list[_Device]) -> None:
        """Ask the parent once for all its instances; ask them one by one where that takes a privilege we lack."""
        listed = self._holders(handle, parent.subject, None)
        for device in instances:
            if isinstance(listed, list):
                device.said["holders"] = [
                    entry for entry in listed if (entry["gi"], entry["ci"]) == (device.gi, device.ci)
                ]
            elif listed["code"] in _NOT_FOR_US and device.handle is not None:
                device.said["holders"] = self._holders(device.handle, device.subject, device.said["memory"])
            else:
                device.said["holders"] = listed


def _not_listed() -> WireError:
    return WireError(call=COMPUTE, code=Code.CHANGING)


def _wire(error: NvmlCallError) -> WireError:
    return WireError(call=error.call, code=error.code)


def _blank(index: str, *, skipped: bool = False) -> WireGpu:
    return WireGpu(
        index=index,
        uuid=None,
        name="",
        pci_bus_id="",
        parent_uuid=None,
        mig_parent=False,
        fault=None,
        skipped=skipped,
        memory=None,
        holders=None,
        utilization_ratio=None,
        temperature_celsius=None,
        power_watts=None,
        fabric_ready=None,
    )
