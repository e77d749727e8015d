"""One run of the start-up guard: read, step, act."""
