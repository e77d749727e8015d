"""What only a sequence of looks and events tells, carried from one to the next. Pure."""
