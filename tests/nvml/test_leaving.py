"""The child whose parent has gone."""

import os
import subprocess
import sys

from tests.fakes.nvml_reader import Driver

from llmhost.sources.nvml import current_call, xid_counters

QUESTION = b'{"id": 1, "extent": "everything", "skip": [], "listed": 0}\n'


def test_an_answer_without_a_reader_ends_it_without_a_word(driver: Driver) -> None:
    """A guard that ends by a mistake in its config must have its message as its last line."""
    driver.write(["gpu 0"])
    descriptors = current_call.create(), xid_counters.create()
    options = ["--procfs", "/proc", "--unsupported-seconds", "600"]
    options += ["--current-call-fd", str(descriptors[0]), "--xid-counters-fd", str(descriptors[1])]
    with subprocess.Popen(
        [sys.executable, "-m", "llmhost.sources.nvml.child.worker", *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        pass_fds=descriptors,
        env={**os.environ, **driver.environment()},
    ) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        assert child.stderr is not None
        child.stdout.close()
        child.stdin.write(QUESTION)
        child.stdin.flush()  # and stays open
        assert (child.wait(30), child.stderr.read()) == (0, b"")
    for descriptor in descriptors:
        os.close(descriptor)
