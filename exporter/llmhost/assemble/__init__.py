"""The composition root: from a configuration and paths to sources, readers and the exporter."""
