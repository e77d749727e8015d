"""The watched units of one run of systemd: which they are, and what each of them is."""
