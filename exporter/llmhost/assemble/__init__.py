"""The composition root, which alone names concrete sources.

`sources` makes each source and its worker, `exporter` makes the running exporter of them, and `host_reader` reads the
host once for a command.
"""
