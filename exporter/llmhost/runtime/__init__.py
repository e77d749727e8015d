"""Threads, waits, children and log lines that several packages share. Nothing here knows of GPUs, units or processes.

`backoff` spaces out retries, `bounded_call` gives a call a time limit, `line_child` asks a child process line by line,
`log_throttle` keeps repeated lines out of the log, and `mailbox` hands items to a thread.
"""
