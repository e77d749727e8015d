"""What systemd says of service units, over D-Bus. The only importer of dbus_next and asyncio."""
