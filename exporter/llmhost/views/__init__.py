"""Facts as text, JSON and HTML. Pure."""
