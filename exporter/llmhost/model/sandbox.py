"""The sandbox of a unit's processes, and their limits: systemd.exec(5), systemd.resource-control(5)."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Sandbox:
    """Values as systemd spells them; empty where nothing is set, or this systemd does not have the setting."""

    user: str = ""  # User=, a name or a number
    dynamic_user: bool = False
    private_devices: bool = False
    device_policy: str = ""  # auto, closed, strict; PrivateDevices= makes it closed
    device_allow: tuple[str, ...] = ()  # device nodes, or char-… and block-… as in /proc/devices; without the access
    protect_proc: str = ""
    proc_subset: str = ""
    protect_system: str = ""
    protect_control_groups: str = ""  # private and strict, since systemd 257, hide the cgroup tree
    private_pids: str = ""  # since systemd 257
    read_write_paths: tuple[str, ...] = ()
    address_families: tuple[str, ...] | None = None  # RestrictAddressFamilies=; None: nothing is said
    families_are_allowed: bool = False  # or denied
    hidden_paths: tuple[str, ...] = ()  # InaccessiblePaths= and TemporaryFileSystem=
    root: str = ""  # RootDirectory= or RootImage=
    bound_paths: tuple[str, ...] = ()  # BindPaths= and BindReadOnlyPaths=, as they are within
    capabilities: int | None = None  # CapabilityBoundingSet=, a bit for each
    ambient_capabilities: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """None: infinite, or this systemd has none."""

    open_files: int | None = None  # LimitNOFILE=, the hard one
    memory_bytes: int | None = None  # MemoryMax=
