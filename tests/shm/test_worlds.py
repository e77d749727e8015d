"""Claims on files in worlds made up at random, where the truth is known.

Processes come, go, fork, take files and let go of them, some refuse to be inspected, files appear and change, deadlines
cut scans short. The inspector is made up too: it tells the truth of its moment.
"""

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from llmhost.model.ids import ProcessId
from llmhost.sources.shm.files import File
from llmhost.sources.shm.holders import Claim, Holders
from llmhost.sources.shm.process import HeldInodes, Inspector

DEVICE = 27
GRACE_SECONDS = 30.0
INODES = range(1, 7)


@dataclass
class Made:
    start: int
    refuses: bool
    held_since: dict[int, float] = field(default_factory=dict)  # inode → when it took it
    privately: set[int] = field(default_factory=set)  # of these, not to be seen by a quick look


class World(Inspector):
    def __init__(self, seed: int) -> None:
        super().__init__(Path("/nowhere"))
        self.random = random.Random(seed)
        self.now = 1000.0
        self.processes = {pid: Made(pid, refuses=False) for pid in range(1, 12)}
        self.files: dict[int, int] = {}  # inode → ctime
        self.changes = 0
        self.pids_made = 12
        self.inspections = 0
        self.most_inspections: float = float("inf")

    def pids(self) -> set[int]:
        return set(self.processes)

    def inspect(self, pid: int, device: int, *, thorough: bool) -> HeldInodes | None:
        assert device == DEVICE
        self.inspections += 1
        made = self.processes.get(pid)
        if made is None:
            return None
        if made.refuses:
            raise PermissionError
        held = frozenset(inode for inode in made.held_since if thorough or inode not in made.privately)
        return HeldInodes(ProcessId(pid, made.start), held)

    def go_on(self) -> None:
        self.now += self.random.choice([0.5, 2.0, 7.0, 15.0, 40.0])
        for _ in range(self.random.randrange(4)):
            self.random.choice(
                [self._inspect, self._inspect, self._let_go, self._let_go, self._end, self._fork, self._touch]
            )()
        self.most_inspections = self.random.choice([3, 6, 20, float("inf"), float("inf")])

    def _someone(self) -> tuple[int, Made]:
        pid = self.random.choice(sorted(self.processes))
        return pid, self.processes[pid]

    def _inspect(self) -> None:
        _, made = self._someone()
        if self.files:
            inode = self.random.choice(sorted(self.files))
            made.held_since.setdefault(inode, self.now)
            if self.random.random() < 0.3:
                made.privately.add(inode)

    def _let_go(self) -> None:
        _, made = self._someone()
        for inode in [inode for inode in made.held_since if self.random.random() < 0.8]:
            del made.held_since[inode]
            made.privately.discard(inode)

    def _end(self) -> None:
        pid, _ = self._someone()
        if pid != 1:
            del self.processes[pid]

    def _fork(self) -> None:
        _, parent = self._someone()
        reused = [pid for pid in range(2, self.pids_made) if pid not in self.processes]
        pid = self.random.choice(reused) if reused and self.random.random() < 0.2 else self.pids_made
        self.pids_made = max(self.pids_made, pid + 1)
        inherited = dict.fromkeys(parent.held_since, self.now)
        self.changes += 1
        refuses = self.random.random() < 0.1
        self.processes[pid] = Made(1000 + self.changes, refuses, inherited, set(parent.privately))

    def _touch(self) -> None:
        """Make, change or remove a file; its number may be given to another at once, unless it is held."""
        inode = self.random.choice(INODES)
        self.changes += 1
        if inode in self.files and self.random.random() < 0.3:
            del self.files[inode]
            for made in self.processes.values():
                made.held_since.pop(inode, None)
        else:
            self.files[inode] = self.changes

    def listed(self) -> dict[int, File]:
        return {inode: File(str(inode), inode, 0, 0, changed, 0) for inode, changed in sorted(self.files.items())}

    def holding(self, inode: int) -> set[ProcessId]:
        return {ProcessId(pid, made.start) for pid, made in self.processes.items() if inode in made.held_since}


def check(world: World, claims: dict[int, Claim], changed: dict[tuple[int, int], float], scanned: float) -> None:
    for inode, claim in claims.items():
        truth = world.holding(inode)
        if claim.holders is None:
            continue
        if claim.holders:
            assert claim.holders <= truth
            assert claim.inspected_at == world.now
            continue
        assert claim.inspected_at <= scanned
        assert changed[inode, world.files[inode]] <= claim.inspected_at, "it is younger than the look"
        since = [world.processes[process.pid].held_since[inode] for process in truth]
        assert all(taken > claim.inspected_at for taken in since), "somebody held it then, and does"


@pytest.mark.parametrize("seed", range(60))
def test_no_claim_is_ever_false(seed: int) -> None:
    world = World(seed)
    holders = Holders(world, DEVICE, lambda _pids: 0)
    changed: dict[tuple[int, int], float] = {}
    scans: list[float] = []
    last_held: dict[int, float] = {}
    for _ in range(60):
        world.go_on()
        for inode, change in world.files.items():
            changed.setdefault((inode, change), world.now)
        before, world.inspections = holders.full_scans, 0
        claims = dict(
            holders.scan(
                world.listed(),
                now=world.now,
                grace_seconds=GRACE_SECONDS,
                overdue=lambda: world.inspections >= world.most_inspections,
            )
        )
        assert set(claims) == set(world.files)
        if holders.full_scans > before:
            assert not scans or world.now >= scans[-1] + GRACE_SECONDS
            scans.append(world.now)
            refusing = any(made.refuses for made in world.processes.values())
            if refusing:
                assert holders.uninspected
        check(world, claims, changed, world.now)
        for inode, claim in claims.items():
            if claim.holders:
                last_held[inode] = world.now
            elif claim.holders is not None:
                assert claim.inspected_at > last_held.get(inode, 0.0), "it is older than the last holder that was seen"
    assert scans


def test_claims_on_random_worlds_are_true() -> None:
    """The test above would pass of a source that never claims anything."""
    counts: dict[str, int] = {"held": 0, "unheld": 0, "unknown": 0}
    missing = 0
    for seed in range(60):
        world = World(seed)
        holders = Holders(world, DEVICE, lambda _pids: 0)
        for _ in range(60):
            world.go_on()
            world.most_inspections = float("inf")
            claims = holders.scan(world.listed(), now=world.now, grace_seconds=0.0, overdue=lambda: False)
            refusing = any(made.refuses for made in world.processes.values())
            for inode, claim in claims.items():
                truth = world.holding(inode)
                inspectable = {process for process in truth if not world.processes[process.pid].refuses}
                if claim.holders is None:
                    counts["unknown"] += 1
                    assert refusing  # with a full scan at every look, nothing else is unknown
                    assert not inspectable
                elif claim.holders:
                    counts["held"] += 1
                    missing += claim.holders != inspectable
                else:
                    counts["unheld"] += 1
                    assert not truth
                    assert claim.inspected_at == world.now
    assert min(counts.values()) > 500
    assert missing < counts["held"] / 5  # who took hold of a held file since the last full scan
