"""Shared memory, and the processes that outlive what they belong to."""

from llmhost.metrics.catalog.declare import Mode, of_shm

SHM_SEGMENTS = of_shm(
    "shm_segments",
    "Files in shared memory by kind and state, as of the last look at all processes.",
    "kind",
    "state",
    mode=Mode.ALL,
)
SHM_SEGMENT_BYTES = of_shm("shm_segment_bytes", "Allocated size of them.", "kind", "state", mode=Mode.ALL)
SHM_SEGMENT_APPARENT = of_shm(
    "shm_segment_apparent_bytes", "Size of them as `ls -l` shows it, often far more.", "kind", "state", mode=Mode.ALL
)
SHM_UNLISTED = of_shm(
    "shm_unlisted_files", "Files that are too many to be looked at, or not readable: they are in no other series."
)
SHM_SIZE = of_shm("shm_size_bytes", "Size of the tmpfs.")
SHM_USED = of_shm("shm_used_bytes", "Used in the tmpfs, deleted files that are held included.")
SHM_HIDDEN = of_shm("shm_hidden_bytes", "Used less the files that are listed: deleted, and still held.")
SHM_INODES = of_shm("shm_inodes", "Files that the tmpfs can have.")
SHM_INODES_USED = of_shm("shm_inodes_used", "Files that the tmpfs has, deleted ones that are held included.")
RESOURCE_TRACKERS = of_shm("resource_trackers", "Python's resource trackers.", "state", mode=Mode.ALL)
ORPHAN_PROCESSES = of_shm(
    "orphan_processes",
    'Engine processes that outlived what they belong to; one series of "none" and 0 where there are none. Absent while '
    "there may be some that the exporter has not watched for policy.orphan_grace yet.",
    "engine",
    "role",
    mode=Mode.SPARSE,
)
ORPHAN_OLDEST = of_shm("orphan_oldest_seconds", "For how long the oldest orphan has been one; absent if there is none.")
