"""The demo itself, in a session of its own: `python -m tests.demo.replay [--wait]`."""

import ctypes
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from tests.demo import with_systemd, without_systemd
from tests.demo.narrator import Narrator
from tests.fakes.booted import Booted
from tests.fakes.daemon import Daemon
from tests.fakes.gpu_host import GpuHost
from tests.fakes.monitoring import Monitoring, Pace
from tests.fakes.needs import TOOLS, needs

ROOT = Path(__file__).parents[2]
SHORTER = 30
HOST = "gpu-1"
_PR_SET_PDEATHSIG = 1
# What is looked for, and the Debian package that has it.
PROGRAMS = {"prometheus": "prometheus", "alertmanager": "prometheus-alertmanager", "gcc": "gcc", "dbus-daemon": "dbus"}
PROGRAMS_OF_ROOT = {"systemctl": "systemd", "nsenter": "util-linux", "pgrep": "procps"}


class Interrupts:
    """SIGINT, SIGTERM and SIGHUP end the demo by an exception, but for where they are held back.

    The demo is started with them blocked, until `let_in`: before, an exception would find nobody who takes it.
    """

    NUMBERS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)

    def __init__(self) -> None:
        self._came = threading.Event()
        self._held = False
        self.early = True  # nothing is worth keeping yet
        for number in self.NUMBERS:
            signal.signal(number, self._take)

    def let_in(self) -> None:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, self.NUMBERS)

    def _take(self, *_: object) -> None:
        again = self._came.is_set()
        self._came.set()
        if not self._held and not again:  # a second one would interrupt the clearing up
            raise KeyboardInterrupt

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold them back: what starts here must be known before it can be ended."""
        self._held = True
        yield
        self._held = False
        if self._came.is_set():
            raise KeyboardInterrupt


def missing_programs(*, real_systemd: bool) -> list[str]:
    path = f"{TOOLS / 'usr/bin'}:{os.environ.get('PATH', os.defpath)}"
    programs = PROGRAMS | (PROGRAMS_OF_ROOT if real_systemd else {})
    return [
        f"the program {name}, of Debian's package {package}"
        for name, package in programs.items()
        if shutil.which(name, path=path) is None
    ]


def version_of(program: str) -> str:
    output = subprocess.run([needs(program), "--version"], capture_output=True, text=True, check=False)
    found = re.search(r"version ([0-9.]+)", output.stdout + output.stderr)
    return found[1] if found else "of an unknown version"


def show_addresses(
    narrator: Narrator, monitoring: Monitoring, exporter: Daemon, directory: Path, *, runs: bool
) -> None:
    narrator.heading("What there is to look at")
    if runs:
        narrator.plain("While this runs:")
        narrator.command(f"Prometheus    http://127.0.0.1:{monitoring.prometheus.port}")
        narrator.command(f"Alertmanager  http://127.0.0.1:{monitoring.alertmanager.port}")
        narrator.command(f"exporter      http://127.0.0.1:{exporter.port}/metrics")
        narrator.command(f"{shown('promtool')} query instant http://127.0.0.1:{monitoring.prometheus.port} ALERTS")
    narrator.plain(
        "What Prometheus has stored stays. This serves it, for Grafana with the dashboards in grafana/ (then look at "
        "the time of this demo):"
    )
    narrator.command(f"{shown('prometheus')} --config.file=/dev/null \\")
    narrator.command(f"  --storage.tsdb.path={directory}/data \\")
    narrator.command("  --web.listen-address=127.0.0.1:9090")


def shown(program: str) -> str:
    """Return the program as it can be typed in the checkout."""
    path = Path(needs(program))
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else program


def introduce(narrator: Narrator, *, real_systemd: bool) -> None:
    narrator.heading("The incident that llmhost is for, replayed in about two minutes")
    real = f"Prometheus {version_of('prometheus')}, Alertmanager {version_of('alertmanager')}, llmhost"
    if real_systemd:
        narrator.plain(f"Real: {real}, and a systemd in namespaces of its own: nothing of this machine's is touched.")
        narrator.plain("Not real: the driver with its eight GPUs, and the engine, which holds memory as vLLM does.")
    else:
        narrator.plain(f"Real: {real}.")
        narrator.plain(
            "Not real: the driver with its eight GPUs, the engine, and systemd, which only root can boot here. What it "
            "would tell is played, and the guard has no part in it. All of it is shown by: sudo make demo"
        )
    narrator.plain(
        f"The rules and routes are those in alerts/, with all durations {SHORTER} times shorter. ==> marks what "
        "reaches the pager, the chat or the digest; here all three are a webhook."
    )
    narrator.heading("What happens")


def run(narrator: Narrator, interrupts: Interrupts, directory: Path, *, real_systemd: bool, wait: bool) -> None:
    with ExitStack() as stack:

        def start_monitoring(port: int) -> Monitoring:
            pace = Pace(shorter=SHORTER)
            return stack.enter_context(Monitoring({HOST: port}, pace, narrator.notified, directory=directory))

        if real_systemd:
            with interrupts.held():
                host = stack.enter_context(GpuHost(stack.enter_context(Booted())))
                with_systemd.write_unit(host)
                monitoring = start_monitoring(host.exporter.port)
            exporter: Daemon = host.exporter
            with_systemd.replay(narrator, host, monitoring)
        else:
            with interrupts.held():
                played, exporter = stack.enter_context(without_systemd.played())
                monitoring = start_monitoring(exporter.port)
            without_systemd.replay(narrator, played, exporter, monitoring)
        interrupts.early = False
        show_addresses(narrator, monitoring, exporter, directory, runs=wait)
        if wait:
            narrator.plain("Ctrl-C ends it all.")
            signal.pause()


def play(narrator: Narrator, interrupts: Interrupts) -> int:
    real_systemd = os.geteuid() == 0
    missing = missing_programs(real_systemd=real_systemd)
    if missing:
        print("demo: this machine lacks", *(f"  {program}" for program in missing), sep="\n", file=sys.stderr)
        return 2
    introduce(narrator, real_systemd=real_systemd)
    directory = Path(tempfile.mkdtemp(prefix="llmhost-demo-"))
    try:
        run(narrator, interrupts, directory, real_systemd=real_systemd, wait="--wait" in sys.argv)
    except KeyboardInterrupt:
        if interrupts.early:
            shutil.rmtree(directory)
        raise
    except (pytest.skip.Exception, pytest.fail.Exception, AssertionError) as error:
        print(f"demo: {error}", file=sys.stderr)
        return 1
    return 0


def main() -> int:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    interrupts, narrator = Interrupts(), Narrator()
    try:
        interrupts.let_in()
        return play(narrator, interrupts)
    except KeyboardInterrupt:
        print("\ndemo: ended; nothing of it runs any more", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
