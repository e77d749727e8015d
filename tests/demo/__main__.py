"""The incident, replayed on one machine without a GPU: `make demo`.

    python -m tests.demo [--no-wait]

This process only passes signals on to the one that does it all, which is in a session of its own: a Ctrl-C then reaches
that one alone, and not what it started and will end itself.
"""

import signal
import subprocess
import sys

REPLAY = (sys.executable, "-m", "tests.demo.replay")


def main() -> int:
    wait = ["--wait"] if sys.stdin.isatty() and "--no-wait" not in sys.argv else []
    replay = subprocess.Popen([*REPLAY, *wait], stdin=subprocess.DEVNULL, start_new_session=True)
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, lambda which, _: replay.send_signal(which))
    return replay.wait()


if __name__ == "__main__":
    sys.exit(main())
