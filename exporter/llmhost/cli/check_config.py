"""`llmhost check-config [FILE]`: print the resulting config, or the first mistake."""

from collections.abc import Iterator
from pathlib import Path
from typing import TextIO

from llmhost.assemble.token_files import token_fault
from llmhost.cli.exits import Exit
from llmhost.cli.output import complain, write_out
from llmhost.config.load import ConfigError, dump, load
from llmhost.config.paths import DEFAULT_CONFIG
from llmhost.config.schema import Config


def _token_faults(config: Config) -> Iterator[str]:
    """Find token files that cannot be used. The exporter starts all the same: a token may come later."""
    for number, engine in enumerate(config.engines):
        try:
            fault = token_fault(engine.token_file)
        except PermissionError:
            complain(f"{engine.token_file} is not checked: this user may not read it")
            continue
        if fault:
            yield f"engines[{number}].token_file: {fault}"


def run(path: Path | None, stderr: TextIO) -> Exit:
    """Print the resulting config of `path` (None: the default file, if there is one) as a config file."""
    try:
        config = load(path)
    except ConfigError as error:
        print(error, file=stderr)
        return Exit.WRONG_USE
    faults = list(_token_faults(config))
    for fault in faults:
        print(f"{path or DEFAULT_CONFIG}: {fault}", file=stderr)
    if faults:
        return Exit.WRONG_USE
    if path is None and not DEFAULT_CONFIG.exists():
        print(f"llmhost: there is no {DEFAULT_CONFIG}; these are the defaults", file=stderr)
    write_out(dump(config))
    return Exit.GOOD
