"""The guard's drop-in: written whole, and removed only if it has not been edited."""

import contextlib
import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

NAME = "llmhost-guard.conf"
SYSTEM = Path("/etc/systemd/system")
_FIRST = "# Written by llmhost guard --install. Once edited, it is neither written anew nor removed by it: sha256 "


@dataclass(frozen=True, slots=True)
class DropIn:
    """The file of one unit. Methods raise OSError."""

    path: Path

    def text(self) -> str | None:
        """Read it; None where there is none."""
        try:
            return self.path.read_text(encoding="utf-8", errors="surrogateescape")
        except FileNotFoundError:
            return None

    def write(self, body: str) -> None:
        """Replace it as a whole, readable for all: systemd never finds half of it. Where it fails, all is as before."""
        try:
            self._write(body)
        except OSError as error:
            self._remove_empty_folder()
            raise OSError(error.errno, f"cannot be written: {error.strerror}", str(self.path)) from error

    def _write(self, body: str) -> None:
        self.path.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
        descriptor, name = tempfile.mkstemp(prefix=f".{NAME}.", dir=self.path.parent)  # no *.conf: systemd skips it
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as file:
                file.write(signed(body))
                file.flush()
                os.fchmod(file.fileno(), 0o644)
                os.fsync(file.fileno())
            Path(name).replace(self.path)
        except BaseException:
            Path(name).unlink(missing_ok=True)
            raise

    def remove(self) -> None:
        """Remove it, and its folder if that is empty then."""
        self.path.unlink()
        self._remove_empty_folder()

    def _remove_empty_folder(self) -> None:
        with contextlib.suppress(OSError):
            self.path.parent.rmdir()


def drop_in_of(unit: str, system: Path = SYSTEM) -> DropIn:
    return DropIn(system / f"{unit}.d" / NAME)


def installed(system: Path = SYSTEM) -> list[str]:
    """Name the units that have a drop-in of ours. Raises OSError."""
    return sorted(path.parent.name.removesuffix(".d") for path in system.glob(f"*.service.d/{NAME}"))


def signed(body: str) -> str:
    return f"{_FIRST}{_digest(body)}\n{body}"


def is_as_written(text: str) -> bool:
    """Say whether this or an earlier llmhost wrote it just so."""
    first, _, body = text.partition("\n")
    return first == f"{_FIRST}{_digest(body)}"


def _digest(body: str) -> str:
    return hashlib.sha256(body.encode("utf-8", "surrogateescape")).hexdigest()[:16]
