import os
import threading
import time

from llmhost.sources.nvml import current_call as crumbs
from llmhost.sources.nvml.current_call import Crumb, CrumbReader, CrumbWriter


def test_a_note_is_seen_through_the_shared_memory() -> None:
    fd = crumbs.create()
    writer, reader = CrumbWriter(fd), CrumbReader(fd)
    os.close(fd)
    assert reader.read() is None
    before = time.monotonic()
    writer.note("nvmlDeviceGetMemoryInfo_v2", 3)
    crumb = reader.read()
    assert crumb is not None
    assert (crumb.call, crumb.gpu) == ("nvmlDeviceGetMemoryInfo_v2", 3)
    assert before <= crumb.since <= time.monotonic()
    writer.note("nvmlInitWithFlags")
    crumb = reader.read()
    assert crumb == Crumb("nvmlInitWithFlags", None, crumb.since if crumb else 0.0)
    writer.note("nvmlDeviceGetName", 3, "GPU-fa4e0000-0000-4000-8000-000000000000")
    crumb = reader.read()
    assert crumb is not None
    assert (crumb.gpu, crumb.uuid) == (3, "GPU-fa4e0000-0000-4000-8000-000000000000")
    writer.idle()
    assert reader.read() is None
    reader.close()


def test_the_longest_name_that_nvml_has_fits() -> None:
    fd = crumbs.create()
    writer, reader = CrumbWriter(fd), CrumbReader(fd)
    os.close(fd)
    longest = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle_v2"
    writer.note(longest)
    crumb = reader.read()
    assert crumb is not None
    assert crumb.call == longest
    reader.close()


def test_a_note_is_never_read_by_halves() -> None:
    fd = crumbs.create()
    writer, reader = CrumbWriter(fd), CrumbReader(fd)
    os.close(fd)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            writer.note("a" * 60, 1)
            writer.note("b" * 60, 2)

    writing = threading.Thread(target=write)
    writing.start()
    seen: set[tuple[str, int | None]] = set()
    until = time.monotonic() + 10
    while time.monotonic() < until and (len(seen) < 2 or time.monotonic() < until - 9.7):
        crumb = reader.read()
        if crumb is not None:
            seen.add((crumb.call, crumb.gpu))
    done.set()
    writing.join()
    assert seen == {("a" * 60, 1), ("b" * 60, 2)}
    reader.close()
