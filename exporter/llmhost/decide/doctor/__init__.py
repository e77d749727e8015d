"""The doctor: settings and host conditions that will cause trouble. Pure."""
