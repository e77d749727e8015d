"""Ways in, one per module. `read_*` does I/O under an injected root; `parse_*` is pure."""
