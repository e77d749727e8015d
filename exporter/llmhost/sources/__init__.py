"""Sources, one per package or module. `read_*` does I/O under an injected root; `parse_*` is pure."""
