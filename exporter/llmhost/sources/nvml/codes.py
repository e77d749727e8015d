"""NVML's return codes and their causes (nvml.h: nvmlReturn_t). For both processes."""

from enum import IntEnum

from llmhost.model.reading import Cause


class Code(IntEnum):
    CHANGING = -2  # ours: a list that was read before, and the memory or its processes have changed since
    NO_SENSE = -1  # ours: the call succeeded and its answer cannot be true
    UNINITIALIZED = 1
    INVALID_ARGUMENT = 2
    NOT_SUPPORTED = 3
    NO_PERMISSION = 4
    NOT_FOUND = 6
    INSUFFICIENT_SIZE = 7
    DRIVER_NOT_LOADED = 9
    TIMEOUT = 10  # of a wait for events: none came
    LIBRARY_NOT_FOUND = 12
    FUNCTION_NOT_FOUND = 13
    GPU_IS_LOST = 15
    RESET_REQUIRED = 16
    OPERATING_SYSTEM = 17  # a cgroup or sandbox keeps us from the device
    LIB_RM_VERSION_MISMATCH = 18
    ARGUMENT_VERSION_MISMATCH = 25
    UNKNOWN = 999


LOST = frozenset({Code.GPU_IS_LOST, Code.RESET_REQUIRED})
# The session as a whole is broken when every GPU answers one of these: the driver was reloaded, or a container lost its
# devices (NVIDIA/nvidia-docker#1730). A new nvmlInit may fix it.
SESSION_BROKEN = frozenset({Code.UNINITIALIZED, Code.UNKNOWN})
# Answers about the call, not about the health of the GPU.
HARMLESS = frozenset(
    {
        Code.NO_SENSE,
        Code.NOT_SUPPORTED,
        Code.NO_PERMISSION,
        Code.NOT_FOUND,
        Code.INSUFFICIENT_SIZE,
        Code.FUNCTION_NOT_FOUND,
        Code.OPERATING_SYSTEM,
        Code.ARGUMENT_VERSION_MISMATCH,
    }
)

_CAUSES: dict[int, Cause] = {
    Code.NOT_SUPPORTED: Cause.NOT_SUPPORTED,
    Code.NO_PERMISSION: Cause.NO_PERMISSION,
    Code.DRIVER_NOT_LOADED: Cause.NO_DRIVER,
    Code.LIBRARY_NOT_FOUND: Cause.NO_LIBRARY,
    Code.FUNCTION_NOT_FOUND: Cause.NOT_SUPPORTED,
    Code.GPU_IS_LOST: Cause.LOST,
    Code.RESET_REQUIRED: Cause.RESET_REQUIRED,
    Code.OPERATING_SYSTEM: Cause.NO_PERMISSION,
    Code.LIB_RM_VERSION_MISMATCH: Cause.DRIVER_MISMATCH,
    Code.CHANGING: Cause.CHANGING,
}
# Causes for which a GPU is not up; any other answer is an unknown fault.
_FAULTS = frozenset({Cause.LOST, Cause.RESET_REQUIRED, Cause.TIMEOUT, Cause.NO_PERMISSION})
_NAMES = {code.value: code.name for code in Code}


class NvmlCallError(Exception):
    """An NVML call that did not succeed: which, and with what code."""

    def __init__(self, call: str, code: int) -> None:
        super().__init__(described(call, code))
        self.call = call
        self.code = code


def cause_of(code: int) -> Cause:
    return _CAUSES.get(code, Cause.UNKNOWN)


def fault_of(code: int) -> Cause:
    """Map to a cause for a GPU that is not up: lost, reset_required, no_permission, or unknown (llmhost_gpu_fault)."""
    cause = cause_of(code)
    return cause if cause in _FAULTS else Cause.UNKNOWN


def described(call: str, code: int) -> str:
    """Spell it as NVIDIA's documentation does, with the number that people search for."""
    if code == Code.NO_SENSE:
        return f"{call}: an answer that cannot be true"
    if code == Code.CHANGING:
        return f"{call}: not called since memory moved or a process ended; what it said before may hold no more"
    return f"{call}: {_NAMES.get(code, 'error')} ({code})"
