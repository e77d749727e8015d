"""The command: wiring and argument parsing."""
