"""The page of metrics.

`catalog` declares each metric once. A section fills in the samples of one part of the page: `families` (GPUs, holders,
units, the exporter), `starts`, `leftovers`, `throughput`; `sections` lists them. `collector` makes a page of them, and
`exposition` renders it by prometheus_client.
"""
