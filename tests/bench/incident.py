"""The incident three ways, timed: `make bench`. Root only, for a real systemd. It takes three quarters of a minute."""

import sys

from tests.guard.incident import GUARD, LOOP, PLAIN, incident


def main() -> None:
    with incident() as played:
        for name, processes in (
            (PLAIN, "0"),
            (LOOP, f"{played.nvidia_smi_runs} of nvidia-smi"),
            (GUARD, "2 of llmhost"),
        ):
            way = played.ways[name]
            sys.stdout.write(
                f"{name:<12} refused {way.refusals} times, restarted {way.restarts} times; engine started "
                f"{way.late_seconds:.2f} s after the memory was back; processes to wait: {processes}\n"
            )


if __name__ == "__main__":
    main()
