"""Acting on unit events: each start is judged, each end is logged, each memory release is timed."""
