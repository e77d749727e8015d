"""Threads, waits and log lines that several packages share. Nothing here knows of GPUs, units or processes."""
