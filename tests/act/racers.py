"""Processes that use shared memory while it is cleaned up, and notice if anything of theirs is lost.

`python racers.py FOLDER SEED GRACE` runs until its standard input ends, and then tells what it saw, as JSON. Each line
there is the name of a file that is about to be removed: somebody comes for just that one.
"""

import json
import mmap
import os
import random
import sys
import threading
import time
from collections import Counter
from pathlib import Path

_THREADS = 6
_SIZE = 4096
# What comes first in a name: who else comes for the file at its removal.
_ITS_MAKERS, _ANYBODYS, _TO_RENEW = "0", "1", "2"


class Racer:
    """Makes files, lets them go, comes back for them by name, resizes, forks and unlinks, in one thread."""

    def __init__(self, number: int, folder: Path, seed: int, grace_seconds: float) -> None:
        self._number = seed % 16 * 16 + number
        self._folder = folder
        self._chance = random.Random(f"{seed} {number}")
        self._grace_seconds = grace_seconds
        self.did: Counter[str] = Counter()
        self.lost: list[str] = []

    def play(self) -> None:
        kinds = (
            *(self.abandon, self.hand_over, self.come_late, self.keep_mapped, self.resize, self.fork, self.unlink),
            self.leave_to_renew,
        )
        kind = self._chance.choice(kinds)
        owner = {self.unlink: _ITS_MAKERS, self.leave_to_renew: _TO_RENEW}.get(kind, _ANYBODYS)
        name = f"psm_{owner}{self._number:02x}{self.did.total():05x}"  # that nobody had before
        kind(self._folder / name)
        self.did[kind.__name__] += 1

    def abandon(self, path: Path) -> None:
        """Leave a file to be cleaned up."""
        os.close(self._make(path))

    def hand_over(self, path: Path) -> None:
        """No process has the file for less than the grace time: an opener by its name must find it."""
        os.close(self._make(path))
        let_go = time.monotonic()
        time.sleep(self._chance.uniform(0, 0.3) * self._grace_seconds)
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            if time.monotonic() - let_go < 0.8 * self._grace_seconds:  # else we were kept waiting ourselves
                self.lost.append("handed over within the grace time")
            return
        self._hold(path, descriptor, "handed over")

    def come_late(self, path: Path) -> None:
        """Open it about when it is cleaned up. A late opener finds nothing; one that finds it keeps it."""
        os.close(self._make(path))
        self._wait(self._chance.uniform(0.9, 3) * self._grace_seconds)
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            self.did["came too late"] += 1
            return
        self.did["came in time"] += 1
        self._hold(path, descriptor, "taken late")

    def pounce(self, name: str) -> None:
        """Come for a file at the moment of its removal, or up to some milliseconds later."""
        self._wait(self._chance.choice((0.0, 0.0002, 0.015)) * self._chance.random())
        path = self._folder / name
        try:
            descriptor = os.open(path, os.O_RDWR)
        except FileNotFoundError:
            self.did["pounced too late"] += 1
            return
        self.did["pounced in time"] += 1
        self._hold(path, descriptor, "pounced on")

    def leave_to_renew(self, path: Path) -> None:
        """Leave a file that only a process of ours makes anew, under the same name."""
        os.close(self._make(path))

    def is_to_renew(self, name: str) -> bool:
        return name[5] == f"{self._number // 16:x}"

    def renew(self, name: str) -> None:
        """At the moment of its removal, unlink what is left of the last one and make one's own: it is never lost."""
        self._wait(self._chance.choice((0.0001, 0.0004)) * self._chance.random())
        path = self._folder / name
        path.unlink(missing_ok=True)
        descriptor = self._make(path)
        self.did["renewed"] += 1
        inode = os.fstat(descriptor).st_ino
        with mmap.mmap(descriptor, _SIZE):
            os.close(descriptor)
            time.sleep(0.03)
            self._check(path, inode, "renewed")

    def keep_mapped(self, path: Path) -> None:
        descriptor = self._make(path)
        with mmap.mmap(descriptor, _SIZE):
            inode = os.fstat(descriptor).st_ino
            os.close(descriptor)
            time.sleep(self._chance.uniform(1, 3) * self._grace_seconds)
            self._check(path, inode, "mapped")

    def resize(self, path: Path) -> None:
        descriptor = self._make(path)
        time.sleep(self._chance.uniform(0.5, 1.5) * self._grace_seconds)
        os.ftruncate(descriptor, 2 * _SIZE)
        self._hold(path, descriptor, "resized")

    def fork(self, path: Path) -> None:
        """Leave it to a child."""
        descriptor = self._make(path)
        inode = os.fstat(descriptor).st_ino
        pid = os.fork()
        if pid == 0:
            time.sleep(1.5 * self._grace_seconds)
            os._exit(0)
        os.close(descriptor)
        time.sleep(self._chance.uniform(0.5, 1.2) * self._grace_seconds)
        self._check(path, inode, "inherited")
        os.waitpid(pid, 0)

    def unlink(self, path: Path) -> None:
        os.close(self._make(path))
        time.sleep(self._chance.uniform(0, 2) * self._grace_seconds)
        path.unlink(missing_ok=True)

    def _make(self, path: Path) -> int:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
        os.ftruncate(descriptor, _SIZE)
        return descriptor

    def _wait(self, seconds: float) -> None:
        """Wait without sleeping towards the end, so as to come at any moment."""
        until = time.monotonic() + seconds
        time.sleep(max(0.0, seconds - 0.002))
        while time.monotonic() < until:
            pass

    def _hold(self, path: Path, descriptor: int, how: str) -> None:
        """Have it mapped for a while: its name must lead to it all the time, but for the moment of a check."""
        inode = os.fstat(descriptor).st_ino
        with mmap.mmap(descriptor, _SIZE):
            os.close(descriptor)
            time.sleep(0.03 + self._chance.uniform(0, 1) * self._grace_seconds)
            self._check(path, inode, how)

    def _check(self, path: Path, inode: int, how: str) -> None:
        try:
            found = path.stat().st_ino
        except FileNotFoundError:
            self.lost.append(f"{how}: its name is gone")
            return
        if found != inode:
            self.lost.append(f"{how}: its name leads elsewhere")


def main(folder: Path, seed: int, grace_seconds: float) -> None:
    racers = [Racer(number, folder, seed, grace_seconds) for number in range(_THREADS)]
    stop = threading.Event()

    def run(racer: Racer) -> None:
        while not stop.is_set():
            racer.play()

    threads = [threading.Thread(target=run, args=(racer,)) for racer in racers]
    for thread in threads:
        thread.start()
    pouncer = Racer(_THREADS, folder, seed, grace_seconds)
    for line in sys.stdin:
        name = line.rstrip("\n")
        if name.startswith(f"psm_{_ANYBODYS}"):
            pouncer.pounce(name)
        elif name.startswith(f"psm_{_TO_RENEW}") and pouncer.is_to_renew(name):
            pouncer.renew(name)
    racers.append(pouncer)
    stop.set()
    for thread in threads:
        thread.join()
    did = sum((racer.did for racer in racers), Counter[str]())
    lost = [path for racer in racers for path in racer.lost]
    sys.stdout.write(json.dumps({"did": did, "lost": lost}))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
