"""The cleaner's acting step against processes that race it: `make force`, for as many rounds as one likes. Needs root.

The grace time is 50 ms: files are removed at the very time at which others come for them. It runs in a PID namespace,
as root: elsewhere there may be a process that nobody may inspect, and then nothing is stale.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from tests.fakes.needs import needs, needs_root, run_by_hand
from tests.fakes.shm import mounted

from llmhost.act.removing import Remover
from llmhost.config.schema import Policy
from llmhost.decide.cleanup.steps import Outcome, Removal
from llmhost.derive.history.segments import next_unheld
from llmhost.derive.segments import SegmentState, segment_states
from llmhost.model.process import ProcessTable
from llmhost.model.reading import Ok
from llmhost.model.segment import Segment, SegmentId
from llmhost.sources.shm.source import ShmSource

GRACE_SECONDS = 0.05
RACERS = 3


@dataclass(slots=True)
class RaceCounts:
    rounds: int = 0
    results: Counter[str] = field(default_factory=Counter)
    did: Counter[str] = field(default_factory=Counter)
    lost: list[str] = field(default_factory=list)
    remaining: int = 0  # stale files that are there still, when the racers have ended and all is cleaned up


class Looker:
    """Looks again and again, as the exporter does, and gives what is stale."""

    def __init__(self, shm: Path) -> None:
        self._policy = Policy(segment_grace_seconds=GRACE_SECONDS)
        self._source = ShmSource(shm=shm, procfs=Path("/proc"), grace_seconds=GRACE_SECONDS, trust_pid_namespace=True)
        self._since: dict[SegmentId, float] = {}
        self._changed_at: dict[SegmentId, float] = {}

    def stale(self) -> list[Segment]:
        shared = self._source.read(time.monotonic() + 30)
        since, changed_at = next_unheld(self._since, self._changed_at, shared)
        self._since, self._changed_at = dict(since), dict(changed_at)
        no_processes = Ok(ProcessTable(by_pid={}, unreadable=0))
        states = segment_states(Ok(shared), self._since, no_processes, self._policy)
        assert isinstance(states, Ok)
        return [segment for segment in shared.segments if states.value[segment.id] is SegmentState.STALE]


def raced(
    rounds: int, seed: int, folder: Path, remover: Callable[[Path], "Step"], seconds: float = float("inf")
) -> RaceCounts:
    """Remove what is stale, one file a round, while racers use the same folder; then, without them, what is left."""
    counts = RaceCounts()
    racers = [
        subprocess.Popen(
            [sys.executable, Path(__file__).with_name("racers.py"), folder, str(seed + number), str(GRACE_SECONDS)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for number in range(RACERS)
    ]
    until = time.monotonic() + seconds
    reader, step = Looker(folder), remover(folder)
    while counts.rounds < rounds and time.monotonic() < until:
        for segment in reader.stale():
            for racer in racers:
                assert racer.stdin is not None
                racer.stdin.write(f"{segment.path}\n")
                racer.stdin.flush()
            counts.results[step(segment)] += 1
            counts.rounds += 1
    for racer in racers:
        answer = json.loads(racer.communicate("")[0])
        assert racer.returncode == 0
        counts.did += Counter(answer["did"])
        counts.lost += answer["lost"]
    while stale := reader.stale() or _waited(reader):
        for segment in stale:
            step(segment)
    counts.remaining = len(list(folder.iterdir()))
    return counts


def _waited(reader: Looker) -> list[Segment]:
    """Look until a file that had just been let go would be stale: two grace times at the latest."""
    for _ in range(4):
        time.sleep(GRACE_SECONDS)
        if found := reader.stale():
            return found
    return []


Step = Callable[[Segment], str]


def under_a_lease(folder: Path) -> Step:
    remover = Remover(folder)

    def step(segment: Segment) -> str:
        outcome: Outcome = remover.remove(Removal(segment=segment, unit=None, because=""))
        return f"{outcome.result}: {outcome.detail}"

    return step


def naively(folder: Path) -> Step:
    """Remove it as a careful script does: it had no holder for long, and still is the same file."""

    def step(segment: Segment) -> str:
        path = folder / segment.path
        try:
            if path.stat().st_ino == segment.id.inode:
                path.unlink()
        except FileNotFoundError:
            return "gone"
        return "done"

    return step


def main() -> int:
    arguments = argparse.ArgumentParser(prog="python -m tests.act.force", description=__doc__)
    arguments.add_argument("--rounds", type=int, default=10_000)
    arguments.add_argument("--seed", type=int, default=None)
    arguments.add_argument("--naively", action="store_true", help="as a script does, to see what is lost then")
    arguments.add_argument("--json", action="store_true")
    given = arguments.parse_args()
    if os.getpid() != 1:
        needs_root()
        here = [needs("unshare"), "--mount", "--pid", "--fork", "--mount-proc", "--kill-child"]
        return subprocess.run([*here, sys.executable, "-m", "tests.act.force", *sys.argv[1:]], check=False).returncode
    seed = random.randrange(1 << 32) if given.seed is None else given.seed
    with tempfile.TemporaryDirectory() as name, mounted(Path(name)) as folder:
        began = time.monotonic()
        counts = raced(given.rounds, seed, folder, naively if given.naively else under_a_lease)
    if given.json:
        print(json.dumps({name: getattr(counts, name) for name in RaceCounts.__slots__}))
        return 0
    print(f"seed {seed}: {counts.rounds} rounds in {time.monotonic() - began:.0f} s")
    print(f"removed or not: {dict(counts.results)}")
    print(f"racers: {dict(counts.did)}")
    print(f"lost: {len(counts.lost)} {dict(Counter(counts.lost))}; left: {counts.remaining}")
    return int(bool(counts.lost or counts.remaining))


if __name__ == "__main__":
    sys.exit(run_by_hand(main))
