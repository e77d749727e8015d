"""A fake driver: a libnvidia-ml.so.1 that answers by a text file (nvml_library/STATE.md)."""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

import pytest
from tests.fakes.needs import TOOLS, needs

SOURCES = Path(__file__).parent / "nvml_library"
DRIVER_VERSION = "570.86.16"  # what the fake answers unless its state says otherwise


def build() -> Path:
    """Compile the library once per state of its source; runs at the same time do not see half a file."""
    sources = sorted(SOURCES.glob("*.[ch]"))
    digest = hashlib.sha256(b"".join(source.read_bytes() for source in sources)).hexdigest()[:16]
    library = TOOLS / "fake-nvml" / digest / "libnvidia-ml.so"
    if library.exists():
        return library
    compiler = needs("gcc")
    library.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=library.parent) as scratch:
        fresh = Path(scratch) / library.name
        flags = ["-O2", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", "-fvisibility=hidden"]
        units = [str(source) for source in sources if source.suffix == ".c"]
        subprocess.run(
            [compiler, *flags, "-Wl,-soname,libnvidia-ml.so.1", "-o", str(fresh), *units, "-lpthread"],
            check=True,
        )
        fresh.replace(library)
    return library


class FakeNvml:
    """One fake driver: a library directory and the state file that the library reads at each call."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.state = directory / "state"
        self._lines: tuple[str, ...] = ()
        directory.mkdir(parents=True, exist_ok=True)
        self.install_library(DRIVER_VERSION)

    def install_library(self, version: str) -> None:
        """Put a library of this version on disk and point libnvidia-ml.so.1 at it, as a driver package does."""
        library = self.directory / f"libnvidia-ml.so.{version}"
        if not library.exists():
            shutil.copyfile(build(), library)  # a copy: the name that a process maps is the versioned one
        link = self.directory / "libnvidia-ml.so.1.new"
        link.symlink_to(library.name)
        link.replace(self.directory / "libnvidia-ml.so.1")

    def environment(self) -> dict[str, str]:
        """Variables that make a process load this library."""
        return {"LD_LIBRARY_PATH": str(self.directory), "FAKE_NVML_STATE": str(self.state)}

    @property
    def lines(self) -> tuple[str, ...]:
        """The lines that were written last."""
        return self._lines

    def write(self, lines: Iterable[str]) -> None:
        """Say what the driver answers from now on. Surrogate escapes become the bytes that they stand for."""
        self._lines = tuple(lines)
        fresh = self.state.with_suffix(f".{os.getpid()}")
        fresh.write_bytes("".join(f"{line}\n" for line in self._lines).encode(errors="surrogateescape"))
        fresh.replace(self.state)

    def add(self, *lines: str) -> None:
        self.write((*self._lines, *lines))

    def remove(self, *lines: str) -> None:
        self.write(line for line in self._lines if line not in lines)

    def unload(self) -> None:
        """Take the kernel module away: nvmlInit then says DRIVER_NOT_LOADED."""
        self.state.unlink(missing_ok=True)


@pytest.fixture
def fake_nvml(tmp_path: Path) -> FakeNvml:
    """Yield a fake whose driver is not loaded until something is written."""
    return FakeNvml(tmp_path / "nvml")
