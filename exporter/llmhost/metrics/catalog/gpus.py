"""GPUs, and the driver."""

from llmhost.metrics.catalog.declare import MetricKind, Mode, Section, family, of_gpu

GPU_INFO = of_gpu(
    "info",
    "Properties of the GPU, value 1. With memory_api v1, used includes reserved.",
    "name",
    "pci_bus_id",
    "driver_version",
    "parent_uuid",
    "unified_memory",
    "memory_api",
)
GPU_UP = of_gpu("up", "1: the GPU responds. 0: it was seen since boot, and is lost or failing.")
GPU_FAULT = of_gpu("fault", "Cause for which the GPU is not up, value 1.", "cause", mode=Mode.CURRENT)
GPU_MEMORY_TOTAL = of_gpu("memory_total_bytes", "Total memory of the GPU, including reserved memory.")
GPU_MEMORY_USED = of_gpu(
    "memory_used_bytes", "Memory in use, excluding reserved memory (see memory_api of llmhost_gpu_info)."
)
GPU_MEMORY_FREE = of_gpu("memory_free_bytes", "Memory that can be allocated.")
GPU_MEMORY_RESERVED = of_gpu("memory_reserved_bytes", "Memory reserved by the driver.")
GPU_HOLDER_MEMORY = of_gpu(
    "holder_memory_bytes",
    "Memory held by processes, by systemd unit and kind of holder.",
    "unit",
    "manager",
    "kind",
    mode=Mode.SPARSE,
)
GPU_HOLDER_PROCESSES = of_gpu(
    "holder_processes",
    "Processes that hold memory, by systemd unit and kind of holder.",
    "unit",
    "manager",
    "kind",
    mode=Mode.SPARSE,
)
GPU_UNATTRIBUTED = of_gpu(
    "unattributed_memory_bytes", "Memory in use that no visible process holds: used minus all holders, at least 0."
)
GPU_UTILIZATION = of_gpu("utilization_ratio", "Share of time in which a kernel ran, as NVML samples it, 0 to 1.")
GPU_TEMPERATURE = of_gpu("temperature_celsius", "Temperature of the GPU.")
GPU_POWER = of_gpu("power_watts", "Power draw of the GPU and its board.")
GPU_FABRIC_READY = of_gpu(
    "fabric_ready", "1: registration with the NVLink fabric is complete. Absent where there is no fabric."
)
GPU_XID_ERRORS = of_gpu(
    "xid_errors_total",
    "XID errors reported by the driver for the GPU since the exporter started, by number. Absent: none, or the driver "
    "does not report them for this GPU.",
    "xid",
    kind=MetricKind.COUNTER,
    mode=Mode.SPARSE,
)
GPU_LAST_XID = of_gpu(
    "last_xid_timestamp_seconds",
    "Time of the last XID error of that number. Absent where the count is.",
    "xid",
    mode=Mode.SPARSE,
)
GPUS = family(Section.GPUS, "gpus", "GPUs listed by the driver, excluding MIG instances.")
GPUS_EXPECTED = family(
    Section.GPUS, "gpus_expected", "Expected number of GPUs: as configured, else the most seen since boot."
)
DRIVER_MISMATCH = family(
    Section.GPUS,
    "driver_mismatch",
    "1: the NVML library on disk and the loaded driver have different versions, so new GPU programs fail to start.",
)
NVML_STUCK_CALL = family(
    Section.GPUS,
    "nvml_stuck_call_seconds",
    "Duration of a driver call that has not returned. gpu is empty for calls without a GPU.",
    "call",
    "gpu",
    mode=Mode.SPARSE,
)
