"""Engines' own metrics: find where a server is to be asked, ask it, read what it says."""
