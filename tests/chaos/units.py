"""The units that chaos is made with: each ends, or fails, in its own way. ExecStart writes down that it ran."""

DIRECTORY = "/run/chaos"
DIRECT = "c-direct.service"
_RAN = f"echo $$INVOCATION_ID >>{DIRECTORY}/%n"
_NO_LIMIT = "[Unit]\nStartLimitIntervalSec=0\n[Service]\n"
_OF_TEMPLATE = f"""{_NO_LIMIT}
    ExecStart=/bin/sh -c '{_RAN}; sleep 0.4; exit 1'
    Restart=on-failure
    RestartSec=100ms
    """
UNITS = {
    "c-crash.service": f"""{_NO_LIMIT}
        ExecStart=/bin/sh -c '{_RAN}; sleep 0.3; exit 3'
        Restart=on-failure
        RestartSec=100ms
        """,
    "c-always.service": f"""{_NO_LIMIT}
        ExecStart=/bin/sh -c '{_RAN}; sleep 0.05; exit 0'
        Restart=always
        RestartSec=0
        """,
    "c-pre.service": f"""{_NO_LIMIT}
        ExecStartPre=/bin/bash -c 'exit $$((RANDOM %% 2))'
        ExecStart=/bin/sh -c '{_RAN}; sleep 0.2; kill -9 $$$$'
        Restart=on-failure
        RestartSec=50ms
        """,
    "c-limit.service": f"""
        [Unit]
        StartLimitIntervalSec=5
        StartLimitBurst=4
        [Service]
        ExecStart=/bin/sh -c '{_RAN}; exit 1'
        Restart=on-failure
        RestartSec=100ms
        """,
    "c-missing.service": f"""{_NO_LIMIT}
        ExecStart=/nonexistent/program
        Restart=always
        RestartSec=0
        """,
    # Started once, never active, and restarted from that; systemd up to 253 ignores RestartMode=.
    DIRECT: f"""{_NO_LIMIT}
        Type=notify
        ExecStart=/bin/sh -c '{_RAN}; sleep 0.2; exit 3'
        Restart=always
        RestartSec=100ms
        RestartMode=direct
        """,
    "c-sleep.service": f"""{_NO_LIMIT}
        ExecStart=/bin/sh -c '{_RAN}; exec sleep 1000'
        Restart=always
        RestartSec=100ms
        """,
    # Nothing refers to it: systemd lets go of it whenever it has ended.
    "c-once.service": f"""
        [Unit]
        StartLimitIntervalSec=0
        CollectMode=inactive-or-failed
        [Service]
        ExecStart=/bin/sh -c '{_RAN}; exit $$(( $$$$ %% 2 ))'
        """,
    # Of a template: systemd knows an instance only from its first start on.
    "c-of@1.service": _OF_TEMPLATE,
    "c-of@2.service": _OF_TEMPLATE,
    "c-notify.service": f"""{_NO_LIMIT}
        Type=notify
        NotifyAccess=all
        ExecStart=/bin/sh -c '{_RAN}; systemd-notify --ready; sleep 0.3; exit 3'
        Restart=on-failure
        RestartSec=200ms
        """,
    "c-never-ready.service": f"""{_NO_LIMIT}
        Type=notify
        TimeoutStartSec=400ms
        ExecStart=/bin/sh -c '{_RAN}; exec sleep 1000'
        Restart=always
        RestartSec=100ms
        """,
    "c-oneshot.service": f"""{_NO_LIMIT}
        Type=oneshot
        ExecStart=/bin/sh -c '{_RAN}; sleep 0.2; exit 1'
        Restart=on-failure
        RestartSec=200ms
        """,
    "c-slow-pre.service": f"""{_NO_LIMIT}
        ExecStartPre=/bin/sleep 1.5
        ExecStart=/bin/sh -c '{_RAN}; sleep 0.5; exit 1'
        Restart=always
        RestartSec=100ms
        """,
    "c-abnormal.service": f"""{_NO_LIMIT}
        ExecStart=/bin/sh -c '{_RAN}; sleep 0.1; kill -SEGV $$$$'
        Restart=on-abnormal
        RestartSec=300ms
        """,
}


def file_of(unit: str) -> str:
    template, at, _ = unit.partition("@")
    return f"{template}@.service" if at else unit


def pattern_of(unit: str) -> str:
    """Have an instance seen for the first time when it starts: nothing names it before."""
    template, at, _ = unit.partition("@")
    return f"{template}@*.service" if at else unit


def text(unit: str) -> str:
    return "\n".join(line.strip() for line in UNITS[unit].splitlines())
