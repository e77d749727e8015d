"""The history's algorithm: what observations and unit events add to it. Pure."""
