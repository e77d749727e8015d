"""Facts that follow from a snapshot and the history. Pure: no clock, no I/O, no globals."""
