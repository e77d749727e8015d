"""Our own files: the history in the state directory, guard records and the pause request in the run directory."""
