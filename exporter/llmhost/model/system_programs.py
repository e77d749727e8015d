"""Programs that hold GPU memory on behalf of the machine: display servers, MPS, the persistence daemon."""

# By comm, which is at most 15 bytes.
SYSTEM_COMMS = frozenset(
    {
        "Xorg",
        "Xwayland",
        "gnome-shell",
        "kwin_wayland",
        "kwin_x11",
        "nvidia-persiste",
        "nvidia-cuda-mps",
        "sddm-greeter",
        "weston",
        "nv-hostengine",
    }
)
