"""The history: what is remembered of units, processes and segments. Values alone."""
