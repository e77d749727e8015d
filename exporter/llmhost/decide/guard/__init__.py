"""The guard's decision: free, held or unknown. Pure."""
