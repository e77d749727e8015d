"""The NVML child: the only process that touches the driver, and the only module that imports pynvml.

Started by exec (NVML does not survive a fork) as `python -m llmhost.sources.nvml.child.worker`. It answers each JSON
line on stdin with one on stdout (wire). It ends when stdin ends, also while a call hangs, and when NVML as a whole
does not work: a library that was loaded cannot be replaced, so the next attempt wants a new process.
"""

import argparse
import json
import os
import select
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO, cast

import pynvml

from llmhost.sources.nvml.child.driver import Driver
from llmhost.sources.nvml.child.events import EventWatch
from llmhost.sources.nvml.child.session import NvmlSession
from llmhost.sources.nvml.codes import NvmlCallError
from llmhost.sources.nvml.current_call import CurrentCallWriter
from llmhost.sources.nvml.xid_counters import XidCounterWriter

_NO_GPUS = 1  # NVML_INIT_FLAG_NO_GPUS: a host without GPUs is no failure


class Pynvml:
    """Library: pynvml loads it and finds its functions."""

    def init(self) -> None:
        try:
            pynvml.nvmlInitWithFlags(_NO_GPUS)
        except pynvml.NVMLError as error:
            # the loader's error tells a library that is missing from one that is broken; pynvml keeps it as context
            loader = error.__context__
            what = str(loader)[:300] if isinstance(loader, OSError) else "nvmlInitWithFlags"
            raise NvmlCallError(what, error.value) from None

    def function(self, call: str) -> Callable[..., int]:
        try:
            found = pynvml._nvmlGetFunctionPointer(call)  # noqa: SLF001  # the one way to a function that it has
        except pynvml.NVMLError as error:
            raise NvmlCallError(call, error.value) from None
        return cast(Callable[..., int], found)


def _end_with(pipe: int) -> None:
    """End this process when the exporter's end of stdin is gone, whatever the main thread hangs in.

    Not PR_SET_PDEATHSIG: that signal comes when the thread that started us ends, not the process.
    """
    hangup = select.poll()
    hangup.register(pipe, 0)  # POLLHUP is always reported
    hangup.poll()
    os._exit(0)


def serve(questions: BinaryIO, answers: BinaryIO, session: NvmlSession, current_call: CurrentCallWriter) -> None:
    """Answer until the questions end, nobody reads the answers any more, or NVML does not work."""
    for line in questions:
        answer = session.answer(json.loads(line))
        current_call.idle()
        try:
            answers.write(json.dumps(answer, separators=(",", ":")).encode() + b"\n")
            answers.flush()
        except BrokenPipeError:  # who asked has ended meanwhile
            return
        if answer["failed"] is not None:
            return


def main() -> None:
    parser = argparse.ArgumentParser(prog="llmhost NVML child")
    parser.add_argument("--procfs", type=Path, required=True)
    parser.add_argument("--current-call-fd", type=int, required=True)
    parser.add_argument("--xid-counters-fd", type=int, required=True)
    parser.add_argument("--unsupported-seconds", type=float, required=True)
    arguments = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the exporter, which then closes stdin
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what the library prints must not get in between the answers
    threading.Thread(target=_end_with, args=(0,), daemon=True).start()
    current_call = CurrentCallWriter(arguments.current_call_fd)
    library, counters = Pynvml(), XidCounterWriter(arguments.xid_counters_fd)
    session = NvmlSession(
        Driver(library, current_call),
        lambda: EventWatch(library, counters),
        arguments.procfs,
        arguments.unsupported_seconds,
    )
    serve(sys.stdin.buffer, answers, session, current_call)
    os._exit(0)  # the library's own clean-up is not to run under a thread that waits in it


if __name__ == "__main__":
    main()
