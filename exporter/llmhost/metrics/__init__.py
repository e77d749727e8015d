"""The metrics: declared once in the catalogue, built strictly, rendered by prometheus_client."""
