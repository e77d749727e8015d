"""Engines' own metrics: find a server's endpoint, fetch its page, parse it.

`source` has a thread for each server (`poller`), whose client (`server_client`) finds the endpoint (`discover`) and
asks it (`fetch`). `sockets` reads listening sockets, `peer` checks who is at the other end. `parse` is pure, and has
the table of series by engine.
"""
