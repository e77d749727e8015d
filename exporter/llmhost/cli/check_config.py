"""`llmhost check-config [FILE]`: print the config that would be in effect, or the first mistake."""

from pathlib import Path
from typing import TextIO

from llmhost.cli.exits import Exit
from llmhost.config.load import ConfigError, dump, load


def run(path: Path | None, stdout: TextIO, stderr: TextIO) -> Exit:
    """Print the effective config of `path` (None: the default file, if there is one), ready to be a config itself."""
    try:
        config = load(path)
    except ConfigError as error:
        print(error, file=stderr)
        return Exit.WRONG_USE
    stdout.write(dump(config))
    return Exit.GOOD
