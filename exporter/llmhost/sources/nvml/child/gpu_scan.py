"""One pass over all GPUs.

An error in one call costs that field; a GPU that is lost costs that GPU; only errors on every GPU may cost the session.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from llmhost.sources.nvml.child.checked_calls import NO_SUCH_CALL, CheckedCalls, Subject
from llmhost.sources.nvml.child.driver import Driver, Handle
from llmhost.sources.nvml.child.process_lists import COMPUTE, ProcessLists, are_unchanged
from llmhost.sources.nvml.codes import HARMLESS, SESSION_BROKEN, Code, NvmlCallError
from llmhost.sources.nvml.wire import Extent, WireError, WireGpu, WireHolder, WireMemory

_NOT_FOR_US = frozenset({Code.NO_PERMISSION, Code.OPERATING_SYSTEM, Code.NOT_SUPPORTED})
_SICK_SENSORS = 2  # of utilization, temperature and power: nvidia-smi shows ERR! for them (NVIDIA/dcgm-exporter#46)
_FABRIC_UNSUPPORTED_SECONDS = 60.0  # the fabric manager may start later, and a start of an engine waits for it


@dataclass(frozen=True, slots=True)
class Skip:
    """GPUs not to ask: those with these indexes are not touched, those with these UUIDs only until that is known."""

    indexes: frozenset[int] = frozenset()
    uuids: frozenset[str] = frozenset()


@dataclass(slots=True)
class _Device:
    """A GPU or MIG instance of the last full pass: for its memory to be read again, and the rest repeated."""

    wire: WireGpu
    handle: Handle | None = None
    gi: int = -1
    ci: int = -1
    listed: list[WireHolder] | None = None  # the holders as they were listed, and the memory in use just before
    used_when_listed: int | None = None
    memory_alone: bool = False  # nothing else was asked of it yet

    @property
    def subject(self) -> Subject:
        return Subject(self.wire["uuid"] or "", self.wire["mig_parent"])

    @property
    def used(self) -> int | None:
        memory = self.wire["memory"]
        return memory["used"] if memory is not None and "total" in memory else None


class GpuScan:
    """Passes within one NVML session."""

    def __init__(
        self, driver: Driver, procfs: Path, calls: CheckedCalls, on_gpu: Callable[[str, Handle], None]
    ) -> None:
        """`on_gpu` is called for each GPU as soon as its UUID is known."""
        self._driver = driver
        self._on_gpu = on_gpu
        self._procfs = procfs
        self._calls = calls
        self._lists = ProcessLists(driver, procfs, calls)
        self._last: dict[int, list[_Device]] = {}  # by index; a MIG parent before its instances

    def scan(self, listed: int, skip: Skip, extent: Extent) -> list[WireGpu]:
        """Make one pass over as many GPUs as NVML lists; see `Extent` for what is asked of each."""
        if extent == "everything" or len(self._last) != listed:
            self._last = {index: self._gpu(index, skip, extent) for index in range(listed)}
        else:
            for index in self._last:
                if not self._repeated(index, skip, extent):
                    self._last[index] = self._gpu(index, skip, extent)
        return [device.wire for devices in self._last.values() for device in devices]

    def broken(self) -> WireError | None:
        """Return the error of the first GPU when every GPU that was asked answers that the session is broken."""
        answers = [devices[0].wire["fault"] for devices in self._last.values() if not devices[0].wire["skipped"]]
        broken = [fault for fault in answers if fault is not None and fault["code"] in SESSION_BROKEN]
        return broken[0] if broken and len(broken) == len(answers) else None

    def _repeated(self, index: int, skip: Skip, extent: Extent) -> bool:
        """Read the memory of a GPU again and leave the rest as it was; False where it has to be asked as if new."""
        devices = self._last[index]
        wire = devices[0].wire
        self._driver.about(index, wire["uuid"] or "")
        if wire["skipped"] or index in skip.indexes or wire["uuid"] in skip.uuids:
            return False
        if devices[0].memory_alone and extent != "memory_alone":
            return False
        return all(self._refresh(device) for device in devices)

    def _refresh(self, device: _Device) -> bool:
        """Read the memory again; False when the GPU is to be asked everything."""
        if device.handle is None or device.wire["memory"] is None:
            return True
        self._calls.begin_gpu()
        try:
            device.wire["memory"] = self._memory(device.handle, device.subject)
        except NvmlCallError:
            return False
        if device.listed is not None:
            device.wire["holders"] = self._holders_again(device, device.listed)
        return self._calls.failure is None

    def _holders_again(self, device: _Device, listed: list[WireHolder]) -> list[WireHolder] | WireError:
        """Give a list that was read before only if it still goes with the memory that was read just now.

        Else processes that ended would hold memory that is free, and the memory of new ones would have no holder.
        """
        if device.used == device.used_when_listed and are_unchanged(self._procfs, listed):
            return listed
        return _not_listed()

    def _gpu(self, index: int, skip: Skip, extent: Extent) -> list[_Device]:
        memory_alone = extent == "memory_alone"
        if index in skip.indexes:
            return [_Device(_blank(str(index), skipped=True))]
        self._driver.about(index)
        device = _Device(_blank(str(index)), memory_alone=memory_alone)
        instances: list[_Device] = []
        try:
            device.handle = self._driver.handle(index)
            self._identify(device.handle, device.wire)
            if device.wire["uuid"] in skip.uuids:
                device.wire["skipped"] = True
                device.handle = None
                return [device]
            self._calls.begin_gpu()
            instances = self._ask_memory(device.handle, device, memory_alone=memory_alone)
            fault = None
            if memory_alone:  # which does not show how the GPU fares
                self._ask_fabric(device.handle, device)
            else:
                fault = self._ask_the_rest(device.handle, device) or self._calls.total_failure
        except NvmlCallError as error:
            fault = error
        if fault is not None:
            device.wire["fault"] = _wire_error(fault)
            device.handle = None
            return [device]
        for read in (device, *instances):
            if isinstance(read.wire["holders"], list):
                read.listed, read.used_when_listed = read.wire["holders"], read.used
        return [device, *instances]

    def _identify(self, handle: Handle, wire: WireGpu) -> None:
        """Fill in its identity. A device without a UUID (Jetson) goes by its PCI address, else by its index."""
        subject = Subject(f"#{wire['index']}")
        wire["name"] = self._calls.optional(subject, "name", lambda: self._driver.name(handle)) or ""
        wire["pci_bus_id"] = self._calls.optional(subject, "pci", lambda: self._driver.pci_bus_id(handle)) or ""
        try:
            uuid = self._driver.uuid(handle)
        except NvmlCallError as error:
            if error.code not in HARMLESS:
                raise
            uuid = f"PCI-{wire['pci_bus_id']}" if wire["pci_bus_id"] else f"INDEX-{wire['index']}"
        wire["uuid"] = uuid
        self._driver.about(int(wire["index"]), uuid)
        self._on_gpu(uuid, handle)

    def _ask_memory(self, handle: Handle, device: _Device, *, memory_alone: bool) -> list[_Device]:
        """Fill in memory and its holders, and return the MIG instances.

        Raises NvmlCallError when the GPU is lost, or does not say whether it is split: then nobody knows whose its
        memory is.
        """
        wire, driver, calls = device.wire, self._driver, self._calls
        mig = calls.ask(device.subject, "mig", lambda: driver.mig_enabled(handle))
        instances: list[_Device] = []
        if isinstance(mig, NvmlCallError) and mig.code not in HARMLESS:
            raise mig
        if mig is True:
            wire["mig_parent"] = True
            instances = self._instances(handle, device, memory_alone=memory_alone)
        else:
            wire["memory"] = self._memory(handle, device.subject)
            wire["holders"] = _not_listed() if memory_alone else self._holders(handle, device.subject, wire["memory"])
        return instances

    def _ask_the_rest(self, handle: Handle, device: _Device) -> NvmlCallError | None:
        """Fill in the rest, and return the failure of a sick GPU: most of its sensors answer with errors.

        Raises NvmlCallError when the GPU is lost.
        """
        wire, driver, calls, subject = device.wire, self._driver, self._calls, device.subject
        utilization = calls.ask(subject, "utilization", lambda: driver.utilization_ratio(handle))
        temperature = calls.ask(subject, "heat", lambda: driver.temperature_celsius(handle))
        power = calls.ask(subject, "power", lambda: driver.power_watts(handle))
        self._ask_fabric(handle, device)
        wire["utilization_ratio"] = None if isinstance(utilization, NvmlCallError) else utilization
        wire["temperature_celsius"] = None if isinstance(temperature, NvmlCallError) else temperature
        wire["power_watts"] = None if isinstance(power, NvmlCallError) else power
        failures = [
            answer
            for answer in (utilization, temperature, power)
            if isinstance(answer, NvmlCallError) and answer.code not in HARMLESS
        ]
        return failures[0] if len(failures) >= _SICK_SENSORS else None

    def _ask_fabric(self, handle: Handle, device: _Device) -> None:
        device.wire["fabric_ready"] = self._calls.optional(
            device.subject, "fabric", lambda: self._driver.fabric_ready(handle), _FABRIC_UNSUPPORTED_SECONDS
        )

    def _memory(self, handle: Handle, subject: Subject) -> WireMemory | WireError:
        """Read by the v2 call, by v1 where the driver has no v2."""
        memory = self._calls.ask(subject, "memory v2", lambda: self._driver.memory_v2(handle))
        if isinstance(memory, NvmlCallError) and memory.code in NO_SUCH_CALL:
            memory = self._calls.ask(subject, "memory v1", lambda: self._driver.memory_v1(handle))
        if isinstance(memory, NvmlCallError):
            return _wire_error(memory)
        return memory if memory["total"] > 0 else WireError(call="nvmlDeviceGetMemoryInfo", code=Code.NO_SENSE)

    def _holders(
        self, handle: Handle, subject: Subject, memory: WireMemory | WireError | None
    ) -> list[WireHolder] | WireError:
        total = memory["total"] if memory is not None and "total" in memory else None
        listed = self._lists.merged(handle, subject, total)
        return _wire_error(listed) if isinstance(listed, NvmlCallError) else listed

    def _instances(self, handle: Handle, parent: _Device, *, memory_alone: bool) -> list[_Device]:
        """Find the MIG instances: their positions have gaps, and they come and go between any two calls."""
        driver = self._driver
        most = self._calls.ask(parent.subject, "mig most", lambda: driver.mig_most(handle))
        positions = range(0 if isinstance(most, NvmlCallError) else most)
        found = [self._instance(handle, parent, position) for position in positions]
        instances = [instance for instance in found if instance is not None]
        if memory_alone:
            for instance in instances:
                instance.wire["holders"] = _not_listed()
        else:
            self._hand_out_holders(handle, parent, instances)
        return instances

    def _instance(self, handle: Handle, parent: _Device, position: int) -> _Device | None:
        driver = self._driver
        wire = _blank(f"{parent.wire['index']}:{position}")
        wire["pci_bus_id"], wire["parent_uuid"] = parent.wire["pci_bus_id"], parent.wire["uuid"]
        try:
            instance = driver.mig_handle(handle, position)
            wire["uuid"] = driver.uuid(instance)
            device = _Device(wire, instance, driver.gpu_instance(instance), driver.compute_instance(instance))
        except NvmlCallError as error:
            if error.code in HARMLESS or error.code == Code.INVALID_ARGUMENT:  # none there, or gone meanwhile
                return None
            raise
        wire["name"] = self._calls.optional(device.subject, "name", lambda: driver.name(instance)) or ""
        wire["memory"] = self._memory(instance, device.subject)
        return device

    def _hand_out_holders(self, handle: Handle, parent: _Device, instances: list[_Device]) -> None:
        """Ask the parent once for all its instances; ask them one by one where that takes a privilege we lack."""
        listed = self._holders(handle, parent.subject, None)
        for device in instances:
            if isinstance(listed, list):
                device.wire["holders"] = [
                    entry for entry in listed if (entry["gi"], entry["ci"]) == (device.gi, device.ci)
                ]
            elif listed["code"] in _NOT_FOR_US and device.handle is not None:
                device.wire["holders"] = self._holders(device.handle, device.subject, device.wire["memory"])
            else:
                device.wire["holders"] = listed


def _not_listed() -> WireError:
    return WireError(call=COMPUTE, code=Code.CHANGING)


def _wire_error(error: NvmlCallError) -> WireError:
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
