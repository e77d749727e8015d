"""Questions of the exporter and answers of its NVML child: one JSON object a line, the same release on both ends.

Bytes, ratios, degrees and watts are already in the model's units. `index` is NVML's, "0", or "0:3" for MIG.
"""

from typing import Literal, TypedDict, final

NO_INSTANCE = 0xFFFFFFFF  # gpuInstanceId and computeInstanceId of a process on a GPU without MIG (nvml.h)


class WireSkip(TypedDict):
    """A GPU not to touch. Its index is where it was when that many GPUs were listed: another number, another order."""

    uuid: str | None  # None: it hung before its UUID was known, and goes by its index whatever is listed
    index: int | None  # None: it was not among those listed last


# What to ask of the GPUs that are not skipped. Holders are repeated only with unchanged memory and processes, and are
# CHANGING otherwise. A GPU is new if the last answer did not have it, or it failed or was skipped there.
#
#               memory   holders        power and the like   a new GPU
# everything    read     lists read     read                 everything
# memory        read     repeated       repeated             everything
# memory_alone  read     repeated       repeated             identity, memory, fabric; the rest by the next `memory`
Extent = Literal["everything", "memory", "memory_alone"]


class Question(TypedDict):
    id: int
    extent: Extent
    skip: list[WireSkip]
    listed: int  # GPUs in the last answer; 0 before the first


@final  # so that a key tells it from its alternatives
class WireError(TypedDict):
    call: str
    code: int


@final  # so that a key tells it from its alternatives
class WireMemory(TypedDict):
    api: str
    total: int
    used: int
    free: int
    reserved: int | None


class WireHolder(TypedDict):
    pid: int
    gi: int
    ci: int
    used: int | None
    start_ticks: int | None


class WireGpu(TypedDict):
    """A GPU as one pass found it. With `fault` or `skipped` only the identity counts, as far as it is known."""

    index: str
    uuid: str | None  # None: the GPU did not get as far as telling it
    name: str
    pci_bus_id: str
    parent_uuid: str | None
    mig_parent: bool  # its instances have the memory and the holders
    fault: WireError | None
    skipped: bool
    memory: WireMemory | WireError | None  # None for a MIG parent
    holders: list[WireHolder] | WireError | None
    utilization_ratio: float | None
    temperature_celsius: float | None
    power_watts: float | None
    fabric_ready: bool | None


class Answer(TypedDict):
    id: int
    failed: WireError | None  # the session as a whole; the child ends after it
    driver_version: str  # "" where `failed`
    nvml_version: str
    library_version: str | None  # of the library that the child has loaded
    library_on_disk_version: str | None
    listed: int
    gpus: list[WireGpu]
