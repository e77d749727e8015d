"""What it means. Pure: no clock, no I/O, no globals."""
