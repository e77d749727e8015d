"""Our own files: the history in the state directory, guard records and driver pauses in the run directory."""
