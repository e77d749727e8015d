"""GPUs through NVML: the source, and the child process that asks the driver (`worker`, sole importer of pynvml)."""
