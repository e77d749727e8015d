"""Fixtures of this folder: the fake driver, readers of it, and processes that SIGKILL does not end."""

from tests.fakes.nvml_reader import fake_nvml, new_reader
from tests.fakes.unkillable import keep_from_dying

__all__ = ["fake_nvml", "keep_from_dying", "new_reader"]
