"""The guard's log lines. Pure."""
