"""Chaos for as long as one likes: `python -m tests.chaos.run --seconds 180 --seed 7`. Needs root."""

import argparse
import random
import sys
import time

from tests.chaos.chaos import Chaos
from tests.fakes.needs import needs_root, run_by_hand


def main() -> int:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("--seconds", type=float, default=180.0)
    arguments.add_argument("--seed", type=int, default=None)
    given = arguments.parse_args()
    needs_root()
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    print(f"seed {seed}, {given.seconds:g} s")
    cpu = time.process_time()
    with Chaos(seed) as chaos:
        chaos.run(seconds=given.seconds)
        outcomes = chaos.outcomes()
        print(dict(chaos.done), dict(chaos.watched.source._resyncs), f"{time.process_time() - cpu:.1f} s of CPU")
        for outcome in outcomes:
            print(outcome)
    return 0 if all(outcome.is_right for outcome in outcomes) else 1


if __name__ == "__main__":
    sys.exit(run_by_hand(main))
