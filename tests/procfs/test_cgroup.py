"""The unit or container of a cgroup file. Paths are real ones of systemd, Docker, Podman, CRI and LXC."""

import pytest

from llmhost.model.ids import UnitId
from llmhost.model.process import Home, Placement
from llmhost.sources.cgroup import parse_cgroup

ID = "4f9cb2a3d2e14a0b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b"
POD = "pod6a5b4c3d_1e2f_4a5b_8c9d_0e1f2a3b4c5d"


def service(name: str, manager: str = "system") -> Placement:
    return Placement(Home.SERVICE, UnitId(name, manager))


def container(container_id: str = ID) -> Placement:
    return Placement(Home.CONTAINER, container_id=container_id)


def scope(name: str, manager: str = "system") -> Placement:
    return Placement(Home.SCOPE, scope=UnitId(name, manager))


SESSION = Placement(Home.SESSION)
NONE = Placement(Home.NONE)
USER = "/user.slice/user-1000.slice/user@1000.service"

PATHS = {
    # services of the system manager
    "/system.slice/vllm.service": service("vllm.service"),
    "/system.slice/system-vllm.slice/vllm@a.service": service("vllm@a.service"),
    r"/system.slice/system-vllm.slice/vllm@Qwen-Qwen3\x2d8B.service": service(r"vllm@Qwen-Qwen3\x2d8B.service"),
    "/llm.slice/llm-big.slice/vllm.service/workers": service("vllm.service"),
    "/vllm.service": service("vllm.service"),
    "/system.slice/vllm.service (deleted)": service("vllm.service"),
    "/system.slice/user@db.service": service("user@db.service"),
    "/system.slice/mail@user@host.service": service("mail@user@host.service"),
    # names that collide with the kernel's get a "_" in front (cg_escape)
    "/system.slice/_cpu.service": service("cpu.service"),
    "/system.slice/__dunder.service": service("_dunder.service"),
    "/_memory.slice/vllm.service": service("vllm.service"),
    # services of a user's manager
    f"{USER}/app.slice/vllm.service": service("vllm.service", "user@1000"),
    f"{USER}/vllm.service": service("vllm.service", "user@1000"),
    f"{USER}/app.slice/app-vllm.slice/vllm@b.service/sub": service("vllm@b.service", "user@1000"),
    f"{USER}/app.slice/user@0.service/app.slice/vllm.service": service("user@0.service", "user@1000"),
    f"{USER}/app.slice/app-org.gnome.Terminal.slice/vte-spawn-8d1f.scope": scope("vte-spawn-8d1f.scope", "user@1000"),
    f"{USER}/app.slice/session-3.scope": scope("session-3.scope", "user@1000"),
    f"{USER}/init.scope": SESSION,
    f"{USER}/user.slice/libpod-{ID}.scope/container": container(),
    USER: NONE,
    f"{USER}/app.slice": NONE,
    # what runs in a service's or container's cgroup has no say
    f"/system.slice/vllm.service/libpod-payload-{ID}": service("vllm.service"),
    "/machine.slice/systemd-nspawn@dev.service/payload/system.slice/vllm.service": service(
        "systemd-nspawn@dev.service"
    ),
    f"/system.slice/docker-{ID}.scope/system.slice/vllm.service": container(),
    f"/docker/{ID}/system.slice/vllm.service": container(),
    f"/machine.slice/libpod-{ID}.scope/container/system.slice/vllm.service": container(),
    # containers and pods
    f"/system.slice/docker-{ID}.scope": container(),
    f"/system.slice/docker-{ID}.scope (deleted)": container(),
    f"/machine.slice/libpod-{ID}.scope": container(),
    f"/machine.slice/libpod-conmon-{ID}.scope": container(),
    f"/system.slice/nerdctl-{ID}.scope": container(),
    f"/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-{POD}.slice/cri-containerd-{ID}.scope": container(),
    f"/kubepods.slice/kubepods-{POD}.slice/crio-{ID}.scope": container(),
    f"/kubepods/burstable/{POD}/{ID}": container(),
    f"/kubepods/besteffort/{POD}": container(""),
    f"/kubepods-besteffort-{POD}.slice:cri-containerd:{ID}": container(),
    f"/docker/{ID}": container(),
    f"/system.slice/docker/{ID}": container(),
    f"/docker/buildkit/{ID}": container(),
    f"/actions_job/{ID}": container(),
    f"/libpod_parent/libpod-{ID}": container(),
    f"/default/{ID}": container(),
    "/lxc.payload.web/system.slice/vllm.service": container("web"),
    "/lxc/web/init.scope": container("web"),
    "/machine.slice/machine-fedora.scope/payload": container("fedora"),
    r"/machine.slice/machine-qemu\x2d1\x2dvm.scope/libvirt/emulator": container(r"qemu\x2d1\x2dvm"),
    # sessions, which are systemd-logind's
    "/user.slice/user-0.slice/session-3.scope": SESSION,
    "/user.slice/user-1000.slice/session-c12.scope/sub": SESSION,
    # any other scope is a unit
    "/init.scope": scope("init.scope"),
    "/system.slice/batch-job.scope": scope("batch-job.scope"),
    "/system.slice/session-batch.scope": scope("session-batch.scope"),
    "/batch.slice/batch-a.slice/run-u12.scope/step/1": scope("run-u12.scope"),
    "/system.slice/slurmstepd.scope/job_17/step_0/user/task_0": scope("slurmstepd.scope"),
    "/user.slice/user-1000.slice/tmux-spawn-1f2e3d4c-0011-2233-4455-abcdefabcdef.scope": scope(
        "tmux-spawn-1f2e3d4c-0011-2233-4455-abcdefabcdef.scope"
    ),
    "/system.slice/run-rb5f0c1d2e3f4a5b6c7d8e9f0a1b2c3d4.scope": scope("run-rb5f0c1d2e3f4a5b6c7d8e9f0a1b2c3d4.scope"),
    # nobody's
    "/": NONE,
    "/system.slice": NONE,
    "/boot-99/system.slice/vllm.service": NONE,
    "/mygroup": NONE,
    "/../system.slice/vllm.service": NONE,
    f"/../docker/{ID}": NONE,
    "/system.slice/dev-hugepages.mount": NONE,
    "/system.slice/cups.socket": NONE,
    "/system.slice/.service": NONE,
    "/system.slice/vllm####@x.service": NONE,
    "/lxc.monitor.web": NONE,
}


@pytest.mark.parametrize(("path", "placement"), PATHS.items(), ids=PATHS)
def test_a_path_on_cgroup_v2_gives_its_unit(path: str, placement: Placement) -> None:
    assert parse_cgroup(f"0::{path}\n") == placement


def test_cgroup_v1_is_read_from_systemds_own_hierarchy() -> None:
    text = (
        "12:memory:/system.slice/other.service\n"
        "4:cpu,cpuacct:/system.slice/other.service\n"
        "1:name=systemd:/system.slice/vllm.service\n"
    )
    assert parse_cgroup(text) == service("vllm.service")


def test_on_a_hybrid_host_the_v1_line_goes_before_a_container_runtimes_old_v2_line() -> None:
    text = f"11:pids:/docker/{ID}\n1:name=systemd:/docker/{ID}\n0::/system.slice/containerd.service\n"
    assert parse_cgroup(text) == container()


def test_the_v2_line_is_read_where_the_v1_line_says_nothing() -> None:
    assert parse_cgroup("9:name=systemd:/\n8:pids:/\n0::/system.slice/vllm.service\n") == service("vllm.service")


def test_a_container_without_systemds_hierarchy_is_seen_in_the_controllers() -> None:
    assert parse_cgroup(f"8:devices:/docker/{ID}\n0::/\n") == container()


def test_a_service_named_by_a_controller_alone_is_not_believed() -> None:
    assert parse_cgroup("8:memory:/system.slice/vllm.service\n") == NONE


@pytest.mark.parametrize(
    ("text", "cgroup"),
    [
        ("0::/batch/job-1\n", "/batch/job-1"),
        ("1:name=systemd:/batch\n0::/\n", "/batch"),
        ("0::/system.slice/cups.socket\n", "/cups.socket"),
        ("0::/\n", ""),
        ("0::/user.slice/user-1000.slice\n", ""),
        ("0::/system.slice/vllm.service\n", ""),
    ],
)
def test_a_cgroup_that_is_no_services_has_a_name_for_people(text: str, cgroup: str) -> None:
    assert parse_cgroup(text).cgroup == cgroup


@pytest.mark.parametrize("separator", ["\x0b", "\x0c", "\x1c", "\x85", "\u2028", "\r"])
def test_no_character_but_the_kernels_newline_starts_a_line(separator: str) -> None:
    """A user names cgroups below their own manager at will; only a newline is refused (cgroup_mkdir)."""
    assert parse_cgroup(f"0::{USER}/x{separator}1:name=systemd:/system.slice/vllm.service\n") == NONE


@pytest.mark.parametrize("text", ["", "\n", "garbage", "0:", "0::", "1:name=systemd:\n0::\n"])
def test_a_file_that_says_nothing_gives_no_unit(text: str) -> None:
    assert parse_cgroup(text) == NONE
