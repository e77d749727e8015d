"""Observing the sources: threads, deadlines, single flight. Only here is caught what a source raises."""
