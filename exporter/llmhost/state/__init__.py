"""Our own files: the history in the state directory; guard records, pause request and lock in the run directory."""
