"""Options of all commands that look at the host. Light: whoever only parses arguments imports this."""

import argparse
from pathlib import Path

from llmhost.config.paths import Paths


def add_look_options(parser: argparse.ArgumentParser) -> None:
    """Add what a command takes that looks once, and changes nothing."""
    add_host_options(parser, state_directory_help="where the exporter keeps its history, which is only read")
    parser.set_defaults(log_level="error")  # what fails is part of the answer


def add_host_options(parser: argparse.ArgumentParser, *, state_directory_help: str) -> None:
    """Add `--config`, `--state-dir`, `--run-dir` and `--path.*`; `paths_of` reads the last two."""
    usual = Paths()
    parser.add_argument("--config", type=file, metavar="FILE", help="default: /etc/llmhost/llmhost.yml, if it is there")
    parser.add_argument(
        "--state-dir",
        dest="state_directory",
        type=named,
        metavar="DIR",
        help=f"{state_directory_help}; default: $STATE_DIRECTORY, else /var/lib/llmhost if it is there",
    )
    parser.add_argument(
        "--run-dir",
        dest="run_directory",
        type=named,
        default=usual.run,
        metavar="DIR",
        help=f"where guards record their runs, and `release` its wish; default: {usual.run}",
    )
    for name, default in (
        ("procfs", usual.procfs),
        ("sysfs", usual.sysfs),
        ("cgroup", usual.cgroup),
        ("shm", usual.shm),
    ):
        parser.add_argument(
            f"--path.{name}",
            dest=name,
            type=directory,
            default=default,
            metavar="DIR",
            help=f"default: {default}",
        )


def paths_of(given: argparse.Namespace) -> Paths:
    return Paths(procfs=given.procfs, sysfs=given.sysfs, cgroup=given.cgroup, shm=given.shm, run=given.run_directory)


def named(text: str) -> Path:
    """Take any name but none: that of an unset variable of a shell's would be the current directory."""
    if not text:
        raise argparse.ArgumentTypeError("no directory is named")
    return Path(text)


def file(text: str) -> Path:
    """Take any name but none, as `named`."""
    if not text:
        raise argparse.ArgumentTypeError("no file is named")
    return Path(text)


def directory(text: str) -> Path:
    path = named(text)
    try:
        if path.is_dir():
            return path
    except OSError as error:
        raise argparse.ArgumentTypeError(f"{text} cannot be looked at: {error.strerror}") from None
    raise argparse.ArgumentTypeError(f"{text} is no directory")
