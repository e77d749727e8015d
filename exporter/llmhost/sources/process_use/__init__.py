"""The sockets and debuggers of processes, read before these may be ended.

`read` puts it together. `descriptors` reads a process's sockets, `ip` the kernel's tables of TCP and UDP, `unix` asks
the kernel for Unix sockets and who is at their other ends. All is of our own network namespace alone.
"""
