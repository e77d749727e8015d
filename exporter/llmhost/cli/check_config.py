"""`llmhost check-config [FILE]`: print the resulting config, or the first mistake."""

from pathlib import Path
from typing import TextIO

from llmhost.cli.exits import Exit
from llmhost.cli.output import write_out
from llmhost.config.load import ConfigError, dump, load
from llmhost.config.paths import DEFAULT_CONFIG


def run(path: Path | None, stderr: TextIO) -> Exit:
    """Print the resulting config of `path` (None: the default file, if there is one) as a config file."""
    try:
        config = load(path)
    except ConfigError as error:
        print(error, file=stderr)
        return Exit.WRONG_USE
    if path is None and not DEFAULT_CONFIG.exists():
        print(f"llmhost: there is no {DEFAULT_CONFIG}; these are the defaults", file=stderr)
    write_out(dump(config))
    return Exit.GOOD
