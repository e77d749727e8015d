"""A unit as D-Bus gives it, a mapping of property names to values, turned into the model. Pure."""
