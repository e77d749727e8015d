"""Our own files: what is remembered, in the state directory."""
