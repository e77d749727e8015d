"""The clean-up plan: what may be ended or removed, what is skipped and why. Pure."""
