"""`llmhost`: the way in, also of `python -m llmhost`."""

import os
import sys
from collections.abc import Sequence


def main(argv: Sequence[str] | None = None) -> int:
    arguments = sys.argv[1:] if argv is None else list(argv)
    is_guard = arguments[:1] == ["guard"]
    if is_guard:
        from llmhost.guard.first_moment import begin  # before the imports of all else, which take time

        begin()
    from llmhost.cli.command import run

    code = run(arguments)
    if is_guard:
        # Python's own end takes 0.3 s. A signal that comes then, or systemd's time-out, would change how this ends.
        os._exit(code)
    return code


if __name__ == "__main__":
    sys.exit(main())
