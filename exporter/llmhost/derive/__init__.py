"""Facts derived from a snapshot and the history. Pure: no clock, no I/O, no globals.

`facts` calls the modules whose results all pages and commands share; `host_view` puts facts, snapshot, history and
policy together. `verdict` judges a start, and is asked by `starts` alone. history/ is how the history changes.
"""
