"""`llmhost clean`, as text and JSON. Pure."""
