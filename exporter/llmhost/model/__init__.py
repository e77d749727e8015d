"""Values, frozen: readings and the history. Nothing here reads, decides or writes."""
