"""`llmhost status`, as text and JSON. Pure."""
