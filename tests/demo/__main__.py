"""The incident, replayed on one machine without a GPU: `make demo`.

    python -m tests.demo [--no-wait]

This process only passes signals on to the one that does it all, which is in a session of its own: a Ctrl-C then reaches
that one alone, and not what it started and will end itself. What comes before either can take it waits, blocked.
"""

import signal

SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)

import subprocess  # noqa: E402 - to import it takes time, in which a Ctrl-C would be a traceback
import sys  # noqa: E402

REPLAY = (sys.executable, "-m", "tests.demo.replay")


def main() -> int:
    if set(sys.argv[1:]) - {"--no-wait"}:
        sys.stderr.write("demo: it takes --no-wait, and nothing else\n")
        return 2
    wait = ["--wait"] if sys.stdin.isatty() and "--no-wait" not in sys.argv else []
    replay = subprocess.Popen([*REPLAY, *wait], stdin=subprocess.DEVNULL, start_new_session=True)  # inherits the mask
    for number in SIGNALS:
        signal.signal(number, lambda which, _: replay.send_signal(which))
    signal.pthread_sigmask(signal.SIG_UNBLOCK, SIGNALS)
    return replay.wait()


if __name__ == "__main__":
    sys.exit(main())
