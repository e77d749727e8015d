"""Options of all commands that look at the host. Light: whoever only parses arguments imports this."""

import argparse
from pathlib import Path

_USUAL = (("procfs", "/proc"), ("sysfs", "/sys"), ("cgroup", "/sys/fs/cgroup"), ("shm", "/dev/shm"))  # noqa: S108 - looked at


def add_look_options(parser: argparse.ArgumentParser) -> None:
    """Add `--config`, `--state-dir` and `--path.*`, as `serve` has them."""
    parser.add_argument("--config", type=Path, metavar="FILE", help="default: /etc/llmhost/llmhost.yml, if it is there")
    parser.add_argument(
        "--state-dir",
        dest="state_directory",
        type=Path,
        metavar="DIR",
        help="where the exporter keeps its history, which is only read; default: $STATE_DIRECTORY, else "
        "/var/lib/llmhost if it is there",
    )
    for name, default in _USUAL:
        parser.add_argument(
            f"--path.{name}",
            dest=name,
            type=_directory,
            default=Path(default),
            metavar="DIR",
            help=f"default: {default}",
        )
    parser.set_defaults(log_level="error")  # what fails is part of the answer


def _directory(text: str) -> Path:
    path = Path(text)
    if not path.is_dir():
        raise argparse.ArgumentTypeError(f"{text} is no directory")
    return path
