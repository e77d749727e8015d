"""Prometheus exporter and start-up guard for hosts that run LLM inference servers."""

__version__ = "0.1.0"
