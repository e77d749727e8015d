import os
import threading
import time

from llmhost.sources.nvml import current_call
from llmhost.sources.nvml.current_call import CurrentCall, CurrentCallReader, CurrentCallWriter


def test_a_note_is_seen_through_the_shared_memory() -> None:
    fd = current_call.create()
    writer, reader = CurrentCallWriter(fd), CurrentCallReader(fd)
    os.close(fd)
    assert reader.read() is None
    before = time.monotonic()
    writer.note("nvmlDeviceGetMemoryInfo_v2", 3)
    call = reader.read()
    assert call is not None
    assert (call.name, call.gpu) == ("nvmlDeviceGetMemoryInfo_v2", 3)
    assert before <= call.since <= time.monotonic()
    writer.note("nvmlInitWithFlags")
    call = reader.read()
    assert call == CurrentCall("nvmlInitWithFlags", None, call.since if call else 0.0)
    writer.note("nvmlDeviceGetName", 3, "GPU-fa4e0000-0000-4000-8000-000000000000")
    call = reader.read()
    assert call is not None
    assert (call.gpu, call.uuid) == (3, "GPU-fa4e0000-0000-4000-8000-000000000000")
    writer.idle()
    assert reader.read() is None
    reader.close()


def test_the_longest_name_that_nvml_has_fits() -> None:
    fd = current_call.create()
    writer, reader = CurrentCallWriter(fd), CurrentCallReader(fd)
    os.close(fd)
    longest = "nvmlDeviceGetDeviceHandleFromMigDeviceHandle_v2"
    writer.note(longest)
    call = reader.read()
    assert call is not None
    assert call.name == longest
    reader.close()


def test_a_note_is_never_read_by_halves() -> None:
    fd = current_call.create()
    writer, reader = CurrentCallWriter(fd), CurrentCallReader(fd)
    os.close(fd)
    done = threading.Event()

    def write() -> None:
        while not done.is_set():
            writer.note("a" * 60, 1)
            writer.note("b" * 60, 2)

    writing = threading.Thread(target=write)
    writing.start()
    notes: set[tuple[str, int | None]] = set()
    until = time.monotonic() + 10
    while time.monotonic() < until and (len(notes) < 2 or time.monotonic() < until - 9.7):
        call = reader.read()
        if call is not None:
            notes.add((call.name, call.gpu))
    done.set()
    writing.join()
    assert notes == {("a" * 60, 1), ("b" * 60, 2)}
    reader.close()
