"""The configuration: typed, strict, all optional."""
