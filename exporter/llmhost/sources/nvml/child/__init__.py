"""The NVML child process: everything in this package runs in it, and nothing else touches the driver."""
