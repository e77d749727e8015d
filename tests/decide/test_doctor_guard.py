"""Of the guard: that there is none, or that it is kept from seeing; each setting that does, and some that do not."""

from dataclasses import replace

import pytest
from tests.fakes.doctor_cases import GUARD, RECORD, VLLM, found, of, settings, view
from tests.fakes.values import unit

from llmhost.decide.doctor.diagnose import diagnose
from llmhost.decide.doctor.finding import Severity
from llmhost.model.history.unit_history import Trigger, Verdict
from llmhost.model.sandbox import Sandbox
from llmhost.model.unit import UnitSettings

PTRACE = 1 << 19  # CAP_SYS_PTRACE, capability.h
ALL = 2**64 - 1


def within(sandbox: Sandbox, prefix: str = "", guard: tuple[str, ...] = GUARD[0]) -> UnitSettings:
    return settings(exec_start_pre=(guard,), exec_start_pre_prefixes=(prefix,), sandbox=sandbox)


def test_a_unit_without_a_guard_is_noted_and_warned_of_where_it_was_hurt() -> None:
    (note,) = of("guard", settings())
    assert note.severity is Severity.NOTE
    assert note.remedy == "llmhost guard --install vllm.service puts the guard before it"
    totals = {(Trigger.AUTO, Verdict.RESIDENT): 2, (Trigger.MANUAL, Verdict.CLEAN): 1}
    (warning,) = of("guard", settings(), record=replace(RECORD, starts_total=totals))
    assert warning.severity is Severity.WARNING
    assert "2 of its 3 starts" in warning.why
    assert of("guard", settings(exec_start_pre=GUARD)) == ()
    assert of("guard", settings("/usr/bin/other")) == ()
    within = settings("/opt/llmhost/bin/llmhost guard --timeout 5m -- vllm serve m")  # it is guarded there
    assert of("guard", within) == ()
    assert of("guard-refusals", replace(within, success_exit_statuses=(1,))) == ()


DEAF = "so it lets every start go on"
BLIND = "so it does not tell"
UNRECORDED = "so its runs leave no record"


@pytest.mark.parametrize(
    ("sandbox", "severity", "reason"),
    [
        (Sandbox(address_families=("AF_INET", "AF_INET6"), families_are_allowed=True), Severity.WARNING, DEAF),
        (Sandbox(address_families=(), families_are_allowed=True), Severity.WARNING, DEAF),
        (Sandbox(address_families=("AF_UNIX",)), Severity.WARNING, DEAF),
        (Sandbox(hidden_paths=("/run",)), Severity.WARNING, "TemporaryFileSystem=/run keeps it from asking"),
        (Sandbox(hidden_paths=("-/var/run/dbus",)), Severity.WARNING, DEAF),
        (Sandbox(root="/srv/root"), Severity.WARNING, "RootDirectory= or RootImage= keeps it from asking"),
        (Sandbox(proc_subset="pid"), Severity.NOTE, BLIND),
        (Sandbox(protect_proc="invisible", user="llm", ambient_capabilities=0), Severity.NOTE, BLIND),
        (Sandbox(protect_proc="noaccess", capabilities=0), Severity.NOTE, BLIND),
        (Sandbox(private_pids="yes"), Severity.NOTE, "PrivatePIDs=yes hides others' processes, so it does not tell"),
        (Sandbox(protect_control_groups="private"), Severity.NOTE, "ProtectControlGroups=private hides whose"),
        (Sandbox(protect_control_groups="strict"), Severity.NOTE, "ProtectControlGroups=strict hides whose"),
        (Sandbox(user="llm"), Severity.NOTE, "User=llm may not write to /run/llmhost"),
        (Sandbox(dynamic_user=True), Severity.NOTE, "DynamicUser=yes may not write"),
        (Sandbox(protect_system="strict"), Severity.NOTE, UNRECORDED),
    ],
)
def test_each_setting_that_keeps_something_from_the_guard_is_found(
    sandbox: Sandbox, severity: Severity, reason: str
) -> None:
    (finding,) = of("guard-blinded", within(sandbox))
    assert finding.severity is severity
    assert reason in finding.why
    assert finding.drop_in == ("[Service]", "ExecStartPre=", "ExecStartPre=+/usr/bin/llmhost guard")
    assert of("guard-blinded", within(sandbox, "-+")) == (), "outside the sandbox"


@pytest.mark.parametrize(
    "sandbox",
    [
        Sandbox(),
        Sandbox(protect_control_groups="yes", private_pids="no"),
        Sandbox(user="root", capabilities=ALL, protect_system="full", protect_proc="default", proc_subset="all"),
        Sandbox(address_families=("AF_INET", "AF_UNIX"), families_are_allowed=True),
        Sandbox(address_families=("AF_NETLINK",)),
        Sandbox(hidden_paths=("/dev/shm", "/run/user", "/runs")),
        Sandbox(hidden_paths=("/run",), bound_paths=("/run/dbus",)),
        Sandbox(root="/"),
        Sandbox(protect_proc="invisible", capabilities=PTRACE),
        Sandbox(protect_system="strict", read_write_paths=("-/run/llmhost",)),
    ],
)
def test_settings_that_keep_nothing_from_it_are_none(sandbox: Sandbox) -> None:
    assert of("guard-blinded", within(sandbox)) == ()


def test_a_capability_that_sees_through_and_a_prefix_that_raises_count() -> None:
    seeing = Sandbox(user="llm", protect_proc="invisible", ambient_capabilities=PTRACE)
    (finding,) = of("guard-blinded", within(seeing))
    assert BLIND not in finding.why
    assert of("guard-blinded", within(Sandbox(user="llm"), "!")) == (), "as root, in the sandbox"


def test_a_guard_with_a_given_need_does_not_ask() -> None:
    informed = within(Sandbox(root="/srv/root"), guard=("/usr/bin/llmhost", "guard", "--need-free=80GiB"))
    assert of("guard-blinded", informed) == ()


def test_what_an_old_systemd_does_not_have_is_not_held_against_the_unit() -> None:
    unprefixed = replace(within(Sandbox(proc_subset="pid")), exec_start_pre_prefixes=())
    assert of("guard-blinded", unprefixed) == ()


def test_other_commands_before_the_start_stay_as_they_are_and_where_they_are() -> None:
    several = settings(
        exec_start_pre=(("/bin/mkdir", "-p", "/srv/x"), ("/opt/py", "-I", "-m", "llmhost", "guard"), ("/bin/true",)),
        exec_start_pre_prefixes=("-", "!", ""),
        sandbox=Sandbox(proc_subset="pid"),
    )
    (finding,) = of("guard-blinded", several)
    assert finding.drop_in == (
        "[Service]",
        "ExecStartPre=",
        "ExecStartPre=-/bin/mkdir -p /srv/x",
        "ExecStartPre=+/opt/py -I -m llmhost guard",
        "ExecStartPre=/bin/true",
    )
    quoted = replace(several, exec_start_pre=(("/bin/sh", "-c", "a b"), *several.exec_start_pre[1:]))
    (finding,) = of("guard-blinded", quoted)
    assert (finding.drop_in, finding.remedy) == ((), 'write "+" before the guard: ExecStartPre=+…')


def test_devices_that_the_unit_may_not_open_are_found_whatever_stands_before_its_guard() -> None:
    def drop_ins(sandbox: Sandbox, active: str = "failed") -> tuple[tuple[str, ...], ...]:
        given = within(sandbox, "+")
        return tuple(finding.drop_in for finding in found("hidden-devices", unit(active=active, settings=given)))

    allow = ("DeviceAllow=char-nvidia* rw", "DeviceAllow=char-195 rw")
    for policy in ("closed", "strict"):
        assert drop_ins(Sandbox(device_policy=policy)) == (("[Service]", *allow),)
    assert drop_ins(Sandbox(device_policy="auto", device_allow=("/dev/fuse", "char-pts"))) == (("[Service]", *allow),)
    private = Sandbox(private_devices=True, device_policy="closed", device_allow=("char-nvidia*",))
    assert drop_ins(private) == (("[Service]", "PrivateDevices=no", *allow),)
    assert drop_ins(replace(private, bound_paths=("/dev/nvidia0", "/dev/nvidiactl"))) == ()
    assert drop_ins(private, active="active") == (), "it runs, so it needs none"
    assert drop_ins(Sandbox(device_policy="auto")) == ()
    for entry in ("/dev/nvidiactl", "char-nvidia*", "char-nvidia-uvm", "char-*", "char-195"):
        assert drop_ins(Sandbox(device_policy="closed", device_allow=(entry,))) == ()
    assert found("hidden-devices", unit(active="failed", settings=settings("/usr/bin/other"))) == ()


@pytest.mark.parametrize(
    ("statuses", "signals", "what", "why", "lines"),
    [
        ((1,), (), "1", "with 5 in place of 1", ("SuccessExitStatus=",)),
        ((3, 5, 143), (), "3 143", "with 6, 6 in place of 3, 143", ("SuccessExitStatus=", "SuccessExitStatus=5")),
        ((), (9,), "SIGKILL", "if it is killed", ("SuccessExitStatus=",)),
        ((2,), (9, 10), "2 SIGKILL", "with 5 in place of 2", None),  # 10 would be an exit status
    ],
)
def test_a_refusal_that_counts_as_success_is_found(
    statuses: tuple[int, ...], signals: tuple[int, ...], what: str, why: str, lines: tuple[str, ...] | None
) -> None:
    given = settings(exec_start_pre=GUARD, success_exit_statuses=statuses, success_signals=signals)
    (finding,) = of("guard-refusals", given)
    assert finding.what == f"SuccessExitStatus={what} counts for its guard too"
    assert why in finding.why
    assert finding.drop_in == (("[Service]", *lines) if lines is not None else ())
    assert of("guard-refusals", replace(given, exec_start_pre=())) == (), "it has no guard"
    assert of("guard-refusals", replace(given, success_exit_statuses=(0, 75), success_signals=(15,))) == ()


def test_a_restart_that_leaves_refused_starts_alone_is_found() -> None:
    for restart, count in (("on-abnormal", 1), ("on-abort", 1), ("on-failure", 0), ("always", 0), ("no", 0)):
        assert len(of("guard-restart", settings(exec_start_pre=GUARD, restart=restart))) == count
    assert of("guard-restart", settings(restart="on-abnormal")) == ()


def test_a_guard_that_root_runs_and_others_may_change_is_an_error() -> None:
    guarded = view(unit(settings=settings(exec_start_pre=GUARD)))
    assert "guard-exposed" not in {finding.check for finding in diagnose(guarded)}
    (finding,) = diagnose(guarded, exposed={VLLM: ("EnvironmentFile=/e: /e belongs to llm", "b")})
    assert (finding.check, finding.severity, finding.why) == (
        "guard-exposed",
        Severity.ERROR,
        "EnvironmentFile=/e: /e belongs to llm; b",
    )
    assert finding.remedy.endswith("llmhost guard --install vllm.service --as-user")
