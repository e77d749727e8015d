"""Unit events: each start is judged, each end is recorded, each memory release is timed."""
