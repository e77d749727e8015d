"""Verdicts, plans and findings, each with its reasons. Pure."""
