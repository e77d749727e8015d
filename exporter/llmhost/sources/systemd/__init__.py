"""Service units of systemd, over D-Bus. The only importer of dbus_next and asyncio.

One thread follows the units by signals; a read takes what it knows.

    source.SystemdSource       the thread: connects, reconnects, answers `read`
      session.BusSession       one connection: the owner of systemd's name, from one run of systemd to the next
        units.units.Units      one run of systemd: lists the units, reads each, then follows its signals
          units.watched_unit   one unit: its life cycle and the reports of its changes (on_event)

bus/ is the connection, below all of these; calls.py has the calls to systemd, properties/ makes model.unit.Unit of what
it answers. units.watchlist says which units, by pattern, by discovery or for the GPU memory that they hold.
"""
