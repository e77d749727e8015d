"""The exporter's status page, as HTML. Pure."""
