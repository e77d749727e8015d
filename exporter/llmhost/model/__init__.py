"""Values: what was read, frozen. Nothing here reads, decides or writes."""
