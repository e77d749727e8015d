"""The history as values: what is kept of units, processes and segments between observations and over restarts."""
