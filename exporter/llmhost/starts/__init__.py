"""Acting on unit events: each start is judged, each end is logged, each memory release is timed.

`watch` takes the steps that derive/history makes of events, `judge` reads what derive/verdict
needs at the moment of a start, `memory_release` waits for the memory of an ended run, `start_log` has the log lines.
"""
