"""The NVML child process: everything here runs in it, and it alone touches the driver."""
