"""The repository as a clone has it: files that git has, or would take; no caches, no build products."""

import subprocess
from pathlib import Path

ROOT = Path(__file__).parents[2]


def files(*folders: str) -> set[str]:
    """Paths from the root, of everything or of some folders."""
    # safe.directory: the checkout may be another user's, as in CI
    listing = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {path for path in listing.stdout.split("\0") if path and (ROOT / path).is_file()}
