"""Files of shared memory and their holders."""
