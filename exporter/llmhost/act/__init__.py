"""The only code that changes the host: signals, unlinking, drop-ins. Each checks its object again first."""
