"""Our own files: the history in the state directory, guard records, the pause request
and the lock of clean-ups in the run directory.
"""
