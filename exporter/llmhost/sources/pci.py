"""NVIDIA's devices on the PCI bus, by sysfs (sysfs-bus-pci in the kernel's ABI documentation)."""

import os
from pathlib import Path

_NVIDIA = "0x10de"


def has_nvidia_device(sysfs: Path) -> bool | None:
    """Say whether there is one; None where that cannot be read. A kernel without PCI has none."""
    devices = sysfs / "bus/pci/devices"
    try:
        if "pci" not in os.listdir(sysfs / "bus"):  # noqa: PTH208 - bare names
            return False
        return any((device / "vendor").read_text().strip() == _NVIDIA for device in devices.iterdir())
    except OSError:
        return None
