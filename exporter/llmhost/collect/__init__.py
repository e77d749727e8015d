"""Observing the sources. What a source raises is caught here, and becomes a Reading with a cause.

`worker` is the thread of one source, `observer` one pass over all, `history_keeper` the one history of a running
exporter. `recent_observations` shares observations between callers, `pending_reading` lets a thread go on meanwhile,
and `driver_pause` keeps everything off the driver while `llmhost release` asks for it.
"""
