"""The sections of the page, in one list. A section is a function that adds the samples of its metrics."""

from collections.abc import Callable

from llmhost.metrics.families import collector_series, gpu_series, holder_series, own_series, unit_series
from llmhost.metrics.leftovers import shm_series, tracker_series
from llmhost.metrics.page import Page
from llmhost.metrics.starts import guard_series, history_series
from llmhost.metrics.throughput import engine_series
from llmhost.metrics.view import PageView

Section = Callable[[PageView, Page], None]

# Which collector a section's failure is charged to, and the section.
SECTIONS: tuple[tuple[str, Section], ...] = (
    ("nvml", gpu_series),
    ("nvml", holder_series),
    ("systemd", unit_series),
    ("systemd", history_series),
    ("shm", shm_series),
    ("procfs", tracker_series),
    ("engine", engine_series),
    ("guard", guard_series),
    ("", collector_series),
    ("", own_series),
)
