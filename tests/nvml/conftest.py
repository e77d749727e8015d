"""Fixtures of this folder: the fake driver with readers of it, and processes that SIGKILL does not end."""

from tests.fakes.nvml_reader import driver
from tests.fakes.unkillable import keep_from_dying

__all__ = ["driver", "keep_from_dying"]
