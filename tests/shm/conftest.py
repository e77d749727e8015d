"""Fixtures of this folder: a tmpfs, a procfs that shows chosen processes, and processes that run given code."""

from tests.fakes.shm import children, processes, tmpfs

__all__ = ["children", "processes", "tmpfs"]
