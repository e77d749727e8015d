"""The doctor: settings and host conditions that will cause trouble. Pure.

A check is a generator of findings. `diagnose` lists all checks; the other modules have them by subject: `settings`
(start, stop, restart), `limits`, `environment`, `guard`, `fabric` and `host`.
"""
