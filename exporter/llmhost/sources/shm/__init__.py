"""Files of shared memory and who holds them."""
