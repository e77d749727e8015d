"""A connection to the system bus: its socket (transport), its messages, its calls and signals (connection)."""
