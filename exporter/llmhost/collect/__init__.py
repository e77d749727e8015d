"""Asking the sources: threads, deadlines, single flight. The only place that catches what a source raises."""
