"""NVML's calls, typed: those that a scan needs, each noted as the current call before it is made."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from llmhost.sources.nvml.child.structs import (
    FabricV1,
    FabricV2,
    MemoryV1,
    MemoryV2,
    PciInfo,
    ProcessInfo,
    Utilization,
    struct_version,
)
from llmhost.sources.nvml.codes import Code, NvmlCallError
from llmhost.sources.nvml.current_call import NO_GPU, CurrentCallWriter
from llmhost.sources.nvml.wire import WireMemory

Handle = ctypes.c_void_p

TEXT_BYTES = 96  # NVML_DEVICE_UUID_V2_BUFFER_SIZE, the longest of the texts
_NOT_AVAILABLE = 0xFFFFFFFFFFFFFFFF  # NVML_VALUE_NOT_AVAILABLE
_TEMPERATURE_GPU = 0
_FABRIC_NOT_SUPPORTED = 0
_FABRIC_COMPLETED = 3
_FIRST_ENTRIES = 128
_LIST_TRIES = 3
_WIDEST_ENTRY_BYTES = 32  # drivers 535.43 to 535.86 write entries of 32 bytes where nvml.h has 24


class Library(Protocol):
    """libnvidia-ml as it was loaded. Both raise NvmlCallError."""

    def init(self) -> None:
        """Begin a session; a host without GPUs is no failure."""
        ...

    def function(self, call: str) -> Callable[..., int]:
        """Find a function by its name; from any thread. FUNCTION_NOT_FOUND where the library has none of that name."""
        ...


@dataclass(frozen=True, slots=True)
class ListedProcess:
    pid: int
    gi: int
    ci: int
    used: int | None


class Driver:
    """NVML's calls, typed. Each raises NvmlCallError.

    The calls are our own, because pynvml asks for process lists twice (each time under the driver's exclusive lock),
    gives up when a list grew in between, and raises UnicodeDecodeError on names that are not UTF-8.
    """

    def __init__(self, library: Library, current_call: CurrentCallWriter) -> None:
        self._library = library
        self._current_call = current_call
        self.about()

    def about(self, gpu: int = NO_GPU, uuid: str = "") -> None:
        """Set the GPU that the next calls are about, for `current_call`: its index, and its UUID once that is known."""
        self._gpu = gpu
        self._uuid = uuid

    def init(self) -> None:
        self._current_call.note("nvmlInitWithFlags")
        self._library.init()

    def shutdown(self) -> None:
        self._call("nvmlShutdown")

    def driver_version(self) -> str:
        return self._text("nvmlSystemGetDriverVersion")

    def nvml_version(self) -> str:
        return self._text("nvmlSystemGetNVMLVersion")

    def count(self) -> int:
        return self._number("nvmlDeviceGetCount_v2")

    def handle(self, index: int) -> Handle:
        return self._handle("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index))

    def uuid(self, device: Handle) -> str:
        return self._text("nvmlDeviceGetUUID", device)

    def name(self, device: Handle) -> str:
        return self._text("nvmlDeviceGetName", device)

    def pci_bus_id(self, device: Handle) -> str:
        info = PciInfo()
        self._call("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(info))
        return _decoded(info.bus_id)

    def mig_enabled(self, device: Handle) -> bool:
        current, pending = ctypes.c_uint(), ctypes.c_uint()
        self._call("nvmlDeviceGetMigMode", device, ctypes.byref(current), ctypes.byref(pending))
        return current.value == 1

    def mig_most(self, device: Handle) -> int:
        return self._number("nvmlDeviceGetMaxMigDeviceCount", device)

    def mig_handle(self, device: Handle, position: int) -> Handle:
        return self._handle("nvmlDeviceGetMigDeviceHandleByIndex", device, ctypes.c_uint(position))

    def gpu_instance(self, instance: Handle) -> int:
        return self._number("nvmlDeviceGetGpuInstanceId", instance)

    def compute_instance(self, instance: Handle) -> int:
        return self._number("nvmlDeviceGetComputeInstanceId", instance)

    def memory_v2(self, device: Handle) -> WireMemory:
        memory = MemoryV2(version=struct_version(MemoryV2, 2))
        self._call("nvmlDeviceGetMemoryInfo_v2", device, ctypes.byref(memory))
        return WireMemory(api="v2", total=memory.total, used=memory.used, free=memory.free, reserved=memory.reserved)

    def memory_v1(self, device: Handle) -> WireMemory:
        memory = MemoryV1()
        self._call("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        return WireMemory(api="v1", total=memory.total, used=memory.used, free=memory.free, reserved=None)

    def processes(self, call: str, device: Handle) -> list[ListedProcess]:
        """List by one of the `nvmlDeviceGet…RunningProcesses_v…` calls; in the usual case it takes one call."""
        room = _FIRST_ENTRIES
        for _ in range(_LIST_TRIES):
            buffer = ctypes.create_string_buffer(room * _WIDEST_ENTRY_BYTES)
            count = ctypes.c_uint(room)
            try:
                self._call(call, device, ctypes.byref(count), buffer)
            except NvmlCallError as error:
                if error.code != Code.INSUFFICIENT_SIZE:
                    raise
                room = max(2 * room, count.value + count.value // 4)
                continue
            entries = (ProcessInfo * min(count.value, room)).from_buffer(buffer)
            return [
                ListedProcess(entry.pid, entry.gi, entry.ci, None if entry.used == _NOT_AVAILABLE else entry.used)
                for entry in entries
            ]
        raise NvmlCallError(call, Code.INSUFFICIENT_SIZE)

    def utilization_ratio(self, device: Handle) -> float:
        rates = Utilization()
        self._call("nvmlDeviceGetUtilizationRates", device, ctypes.byref(rates))
        return float(rates.gpu) / 100

    def temperature_celsius(self, device: Handle) -> float:
        value = ctypes.c_uint()
        self._call("nvmlDeviceGetTemperature", device, ctypes.c_uint(_TEMPERATURE_GPU), ctypes.byref(value))
        return float(value.value)

    def power_watts(self, device: Handle) -> float:
        return self._number("nvmlDeviceGetPowerUsage", device) / 1000

    def fabric_ready(self, device: Handle) -> bool:
        """Say whether the GPU has registered with its NVLink fabric; NOT_SUPPORTED where there is none."""
        call = "nvmlDeviceGetGpuFabricInfoV"
        info: FabricV1 | FabricV2 = FabricV2(version=struct_version(FabricV2, 2))
        try:
            self._call(call, device, ctypes.byref(info))
        except NvmlCallError as error:
            if error.code not in {Code.FUNCTION_NOT_FOUND, Code.ARGUMENT_VERSION_MISMATCH}:
                raise
            call, info = "nvmlDeviceGetGpuFabricInfo", FabricV1()
            self._call(call, device, ctypes.byref(info))
        if info.state == _FABRIC_NOT_SUPPORTED:
            raise NvmlCallError(call, Code.NOT_SUPPORTED)
        return bool(info.state == _FABRIC_COMPLETED and info.status == 0)

    def _call(self, call: str, *arguments: object) -> None:
        self._current_call.note(call, self._gpu, self._uuid)
        code = self._library.function(call)(*arguments)
        if code:
            raise NvmlCallError(call, code)

    def _text(self, call: str, *arguments: object) -> str:
        buffer = ctypes.create_string_buffer(TEXT_BYTES)
        self._call(call, *arguments, buffer, ctypes.c_uint(TEXT_BYTES))
        return _decoded(buffer.value)

    def _number(self, call: str, *arguments: object) -> int:
        value = ctypes.c_uint()
        self._call(call, *arguments, ctypes.byref(value))
        return value.value

    def _handle(self, call: str, *arguments: object) -> Handle:
        handle = Handle()
        self._call(call, *arguments, ctypes.byref(handle))
        return handle


def _decoded(text: bytes) -> str:
    return text.decode(errors="replace")
