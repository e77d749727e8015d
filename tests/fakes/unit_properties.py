"""The properties of a service on D-Bus: their signatures, systemd's defaults, and plain Python turned into them.

From org.freedesktop.systemd1(5) and from systemd 252: those that a program about services may want, not all.
"""

from collections.abc import Mapping
from typing import Any

from dbus_next.signature import Variant

UNITS_PATH = "/org/freedesktop/systemd1/unit/"


def unit_path(name: str) -> str:
    return UNITS_PATH + "".join(
        c if c.isascii() and c.isalnum() and not (i == 0 and c.isdigit()) else f"_{ord(c):02x}"
        for i, c in enumerate(name)
    )


_EXEC = "a(sasbttttuii)"
_INFINITY = 2**64 - 1
_TIMES = ("StateChange", "InactiveExit", "ActiveEnter", "ActiveExit", "InactiveEnter", "Condition", "Assert")
UNIT_SIGNATURES = {
    **dict.fromkeys(("Id", "Description", "LoadState", "ActiveState", "SubState", "FreezerState"), "s"),
    **dict.fromkeys(("UnitFileState", "UnitFilePreset", "FragmentPath", "SourcePath"), "s"),
    "Names": "as",
    "Transient": "b",
    "After": "as",
    **dict.fromkeys(
        ("WantedBy", "RequiredBy", "BoundBy", "UpheldBy", "TriggeredBy", "OnFailureOf", "OnSuccessOf"), "as"
    ),
    **dict.fromkeys(("BindsTo", "Requires", "PartOf", "StopPropagatedFrom"), "as"),
    **dict.fromkeys(("ConditionResult", "AssertResult"), "b"),
    "NeedDaemonReload": "b",
    "InvocationID": "ay",
    "Job": "(uo)",
    "StartLimitIntervalUSec": "t",
    "StartLimitBurst": "u",
    **{f"{time}Timestamp{clock}": "t" for time in _TIMES for clock in ("", "Monotonic")},
}
SERVICE_SIGNATURES = {
    **dict.fromkeys(("Type", "Restart", "KillMode", "Result", "ControlGroup", "StatusText", "NotifyAccess"), "s"),
    **dict.fromkeys(("User", "Group", "Slice", "OOMPolicy", "ExitType", "RestartMode"), "s"),
    **dict.fromkeys(("RestartUSec", "TimeoutStartUSec", "TimeoutStopUSec"), "t"),
    **dict.fromkeys(("NRestarts", "MainPID", "ControlPID", "ExecMainPID", "RestartSteps"), "u"),
    **dict.fromkeys(("ExecMainCode", "ExecMainStatus"), "i"),
    **{f"ExecMain{time}Timestamp{clock}": "t" for time in ("Start", "Exit") for clock in ("", "Monotonic")},
    **dict.fromkeys(("ExecCondition", "ExecStartPre", "ExecStart", "ExecStartPost", "ExecStop"), _EXEC),
    "Environment": "as",
    "EnvironmentFiles": "a(sb)",
    "SendSIGKILL": "b",
    "PassEnvironment": "as",
    "MemoryCurrent": "t",
    "ExecStartPreEx": "a(sasasttttuii)",
    **dict.fromkeys(("DevicePolicy", "ProtectProc", "ProcSubset", "ProtectSystem", "RootDirectory", "RootImage"), "s"),
    **dict.fromkeys(("ProtectControlGroupsEx", "PrivatePIDs"), "s"),
    **dict.fromkeys(("DynamicUser", "PrivateDevices"), "b"),
    **dict.fromkeys(("DeviceAllow", "TemporaryFileSystem"), "a(ss)"),
    **dict.fromkeys(("ReadWritePaths", "InaccessiblePaths"), "as"),
    **dict.fromkeys(("RuntimeDirectory", "StateDirectory", "CacheDirectory", "LogsDirectory"), "as"),
    "WorkingDirectory": "s",
    **dict.fromkeys(("BindPaths", "BindReadOnlyPaths"), "a(ssbt)"),
    "RestrictAddressFamilies": "(bas)",
    "SuccessExitStatus": "(aiai)",
    **dict.fromkeys(("CapabilityBoundingSet", "AmbientCapabilities"), "t"),
    **dict.fromkeys(("LimitNOFILE", "MemoryMax"), "t"),
}
SIGNATURES = UNIT_SIGNATURES | SERVICE_SIGNATURES
_EMPTY: dict[str, Any] = {
    "s": "",
    "t": 0,
    "u": 0,
    "i": 0,
    "b": False,
    "as": [],
    "ay": b"",
    "(uo)": [0, "/"],
    "a(sb)": [],
    "a(ss)": [],
    "a(ssbt)": [],
    "a(sasasttttuii)": [],
    "(bas)": [False, []],
    "(aiai)": [[], []],
    _EXEC: [],
}
_SUB_STATES = {"active": "running", "inactive": "dead", "activating": "start", "deactivating": "stop-sigterm"}
# In PropertiesChanged of systemd 252; the rest is constant until a reload, or never told.
SIGNALLED_UNIT = {"ActiveState", "SubState", "FreezerState", "InvocationID", "Job", "ConditionResult"} | {
    name for name in UNIT_SIGNATURES if "Timestamp" in name
}
SIGNALLED_SERVICE = {"MainPID", "ControlPID", "StatusText", "Result", "NRestarts"} | {
    name for name in SERVICE_SIGNATURES if name.startswith("ExecMain")
}


def full(given: Mapping[str, Any], unit_files: Mapping[str, str]) -> dict[str, Any]:
    """All properties of a unit, from those that are given."""
    name = given["Id"]
    active_state = given.get("ActiveState")
    if not isinstance(active_state, str):
        active_state = "active"
    defaults: dict[str, Any] = {
        "Names": [name],
        "LoadState": "loaded",
        "ConditionResult": bool(given.get("ConditionTimestampMonotonic")),
        "ActiveState": active_state,
        "SubState": _SUB_STATES.get(active_state, active_state),
        "UnitFileState": unit_files.get(name, ""),
        "StartLimitIntervalUSec": 10_000_000,
        "StartLimitBurst": 5,
        "Type": "simple",
        "Restart": "no",
        "KillMode": "control-group",
        "SendSIGKILL": True,
        "Result": "success",
        "ControlGroup": "" if active_state in ("inactive", "failed") else f"/system.slice/{name}",
        "RestartUSec": 100_000,
        "TimeoutStartUSec": 90_000_000,
        "TimeoutStopUSec": 90_000_000,
        "DevicePolicy": "auto",
        "ProtectProc": "default",
        "ProcSubset": "all",
        "ProtectSystem": "no",
        "CapabilityBoundingSet": _INFINITY,
        "LimitNOFILE": 524_288,
        "MemoryMax": _INFINITY,
    }
    return {key: _EMPTY[signature] for key, signature in SIGNATURES.items()} | defaults | dict(given)


def variant(name: str, value: object) -> Variant:
    if isinstance(value, Variant):
        return value
    signature = SIGNATURES[name]
    if signature == _EXEC and isinstance(value, list):
        value = [_command(command) for command in value]
    elif name == "InvocationID" and isinstance(value, str):
        value = bytes.fromhex(value)
    return Variant(signature, value)


def _command(given: Any) -> list[Any]:  # noqa: ANN401 - an argument vector, or the whole struct
    if len(given) > 1 and isinstance(given[1], list):
        return list(given)
    return [given[0], list(given), False, 0, 0, 0, 0, 0, 0, 0]
