"""Engines' own metrics: discover a server's endpoint, fetch its page, parse it."""
