"""Shared memory, orphans and resource trackers."""

from llmhost.metrics.catalog.declare import Mode, of_shm

SHM_SEGMENTS = of_shm(
    "shm_segments",
    "Shared-memory segments by kind and state, as of the last scan of all processes.",
    "kind",
    "state",
    mode=Mode.ALL,
)
SHM_SEGMENT_BYTES = of_shm(
    "shm_segment_bytes", "Allocated size of segments by kind and state.", "kind", "state", mode=Mode.ALL
)
SHM_SEGMENT_APPARENT = of_shm(
    "shm_segment_apparent_bytes",
    "Apparent size of segments (as in ls -l) by kind and state; often far more than allocated.",
    "kind",
    "state",
    mode=Mode.ALL,
)
SHM_UNLISTED = of_shm("shm_unlisted_files", "Files beyond the limit or unreadable, counted in no other series.")
SHM_SIZE = of_shm("shm_size_bytes", "Size of the tmpfs.")
SHM_USED = of_shm("shm_used_bytes", "Space in use in the tmpfs, including deleted files that are still held.")
SHM_HIDDEN = of_shm("shm_hidden_bytes", "Space in use by deleted files that are still held: used minus listed files.")
SHM_INODES = of_shm("shm_inodes", "Inodes of the tmpfs.")
SHM_INODES_USED = of_shm("shm_inodes_used", "Inodes in use, including deleted files that are still held.")
RESOURCE_TRACKERS = of_shm("resource_trackers", "Python resource trackers by state.", "state", mode=Mode.ALL)
ORPHAN_PROCESSES = of_shm(
    "orphan_processes",
    'Engine processes that outlived their parent; one series with engine "none" and value 0 if there are none. Absent '
    "while candidates have not been watched for policy.orphan_grace yet.",
    "engine",
    "role",
    mode=Mode.SPARSE,
)
ORPHAN_OLDEST = of_shm("orphan_oldest_seconds", "Time since the oldest orphan became one. Absent without orphans.")
