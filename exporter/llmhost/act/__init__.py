"""What alone changes the host: signals, unlinking, drop-ins. Each checks again what it is about to change."""
