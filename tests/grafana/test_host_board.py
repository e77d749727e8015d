"""Queries of the host board, answered by promtool from a few series; the answers are worked out by hand."""

from pathlib import Path

from tests.grafana.boards import CANNOT_TELL, Series, answers, panel, stats
from tests.grafana.boards import column as column_of
from tests.grafana.boards import query as query_of

A = 'job="j",instance="a"'
UNIT = f'{A},unit="v.service",manager="system"'
IT_IS_UP, UNDER_WAY = -1, -3
OURS = {f'llmhost_build_info{{{A},version="1.0"}}': 1}
BANNER = [stat["title"] for stat in stats("llmhost-host")]


def query(title: str, ref: str = "A") -> str:
    return query_of("llmhost-host", title, ref)


def column(title: str, name: str) -> str:
    return column_of("llmhost-host", title, name)


def row(labels: str) -> str:
    """Give a row's labels, of a set-up that has no clusters."""
    return f'{{cluster="All",{labels}}}'


def collector(name: str, *, cause: str = "") -> Series:
    success: Series = {f'llmhost_collector_success{{{A},collector="{name}"}}': int(not cause)}
    return {**success, f'llmhost_collector_fault{{{A},collector="{name}",cause="{cause}"}}': 1} if cause else success


def test_the_banner_counts_what_is_wrong(tmp_path: Path) -> None:
    more = f'{A},manager="system"'
    series: Series = {
        **OURS,
        f"up{{{A}}}": 1,
        'up{job="j",instance="b"}': 0,
        'up{job="node",instance="a"}': 0,  # no exporter of ours
        **collector("nvml"),
        **collector("systemd", cause="no_bus"),
        **collector("engine", cause="disabled"),
        f"llmhost_gpus_expected{{{A}}}": 8,
        'llmhost_gpus_expected{job="j",instance="b"}': 2,  # and it lists none
        f'llmhost_gpu_up{{{A},gpu="0",uuid="GPU-0"}}': 1,
        f'llmhost_gpu_up{{{A},gpu="0:1",uuid="MIG-0"}}': 1,
        f'llmhost_gpu_up{{{A},gpu="1",uuid="GPU-1"}}': 0,
        # failed; waiting to restart; ended; stopped by somebody; up
        f'llmhost_unit_active_state{{{more},unit="f.service",state="failed"}}': 1,
        f'llmhost_unit_sub_state{{{more},unit="w.service",state="auto-restart"}}': 1,
        f'llmhost_unit_active_state{{{more},unit="w.service",state="activating"}}': 1,
        f'llmhost_unit_active_state{{{more},unit="e.service",state="inactive"}}': 1,
        f'llmhost_unit_active_state{{{more},unit="s.service",state="inactive"}}': 1,
        f'llmhost_unit_active_state{{{more},unit="u.service",state="active"}}': 1,
        **{f'llmhost_unit_wanted{{{more},unit="{unit}.service"}}': int(unit != "s") for unit in "fwesu"},
        f'llmhost_unit_starts_total{{{more},unit="f.service",trigger="auto",verdict="clean"}}': "4x29 6x50",
        f'llmhost_unit_starts_total{{{more},unit="w.service",trigger="auto",verdict="resident"}}': "0x39 1x50",
        f'llmhost_unit_starts_total{{{more},unit="u.service",trigger="manual",verdict="clean"}}': "0x39 1x50",
        # 3 + 1 GB on GPU 0; on GPU 1 no more than policy.resident
        f"llmhost_policy_resident_bytes{{{A}}}": 1_000_000_000,
        f'llmhost_gpu_holder_memory_bytes{{{A},gpu="0",uuid="GPU-0",unit="f.service",kind="leftover"}}': 3_000_000_000,
        f'llmhost_gpu_holder_memory_bytes{{{A},gpu="0",uuid="GPU-0",unit="u.service",kind="current"}}': 7_000_000_000,
        f'llmhost_gpu_unattributed_memory_bytes{{{A},gpu="0",uuid="GPU-0"}}': 1_000_000_000,
        f'llmhost_gpu_unattributed_memory_bytes{{{A},gpu="1",uuid="GPU-1"}}': 900_000_000,
        f'llmhost_shm_segments{{{A},kind="nccl",state="stale"}}': 3,
        f'llmhost_shm_segments{{{A},kind="nccl",state="live"}}': 5,
        f'llmhost_shm_segments{{{A},kind="vllm",state="stale"}}': 1,
        f'llmhost_shm_segments{{{A},kind="other",state="stale"}}': 9,
    }
    expected = {
        "Is it seen?": 0,
        "Not seen": 1,
        "GPUs": 1,
        "… missing": 9,
        "Units down": 3,
        "Restarts, 1 h": 3,
        "Stuck": 4_000_000_000,
        "Stale files": 4,
    }
    assert list(expected) == BANNER
    checks = {query(title): {"{}": float(value)} for title, value in expected.items()}
    answers(tmp_path, series, {**checks, query("Not seen", "B"): {"{}": 1}, query("GPUs", "B"): {"{}": 10}}, at="45m")


WELL: Series = {
    **OURS,
    f"up{{{A}}}": 1,
    **collector("nvml"),
    **collector("engine", cause="disabled"),
    f"llmhost_gpus_expected{{{A}}}": 1,
    f'llmhost_gpu_up{{{A},gpu="0",uuid="GPU-0"}}': 1,
    f'llmhost_gpu_unattributed_memory_bytes{{{A},gpu="0",uuid="GPU-0"}}': 0,
    f"llmhost_policy_resident_bytes{{{A}}}": 1,
    f"llmhost_unit_wanted{{{UNIT}}}": 1,
    f'llmhost_unit_active_state{{{UNIT},state="active"}}': 1,
    f'llmhost_unit_starts_total{{{UNIT},trigger="auto",verdict="clean"}}': 7,
    f"llmhost_shm_unlisted_files{{{A}}}": 0,
}


def test_the_banner_says_0_where_all_is_well(tmp_path: Path) -> None:
    zero = [title for title in BANNER if title not in {"Is it seen?", "GPUs"}]
    checks = {query(title): {"{}": 0.0} for title in zero}
    answers(tmp_path, WELL, {**checks, query("Not seen", "B"): {"{}": 0}, query("Is it seen?"): {"{}": 2}})


def test_the_banner_says_nothing_where_nothing_is_known(tmp_path: Path) -> None:
    answers(tmp_path, {"other": 1}, {query(title): {} for title in BANNER})


def test_the_banner_is_not_calm_once_the_exporter_is_gone(tmp_path: Path) -> None:
    stale: Series = {name: f"{value}x10 stale" for name, value in WELL.items()}
    up = f"up{{{A}}}"
    known: dict[str, dict[str, float]] = {"Is it seen?": {"{}": 0}, "Not seen": {"{}": 1}}
    checks = {query(title): known.get(title, {}) for title in BANNER}
    answers(tmp_path, {**stale, up: "1x10 0x80"}, {**checks, query("Not seen", "B"): {}}, at="80m")


def test_the_banner_says_nothing_of_files_of_unknown_state(tmp_path: Path) -> None:
    unlisted = f"llmhost_shm_unlisted_files{{{A}}}"
    unknown = f'llmhost_shm_segments{{{A},kind="vllm",state="unknown"}}'
    stale = query("Stale files")
    answers(tmp_path, {unlisted: 0, unknown: 0}, {stale: {"{}": 0}})
    answers(tmp_path, {unlisted: 0, unknown: 2}, {stale: {}})
    answers(tmp_path, {unlisted: 5}, {stale: {}})


def test_a_unit_keeps_its_row_and_columns_when_something_is_unknown(tmp_path: Path) -> None:
    names = list(panel("llmhost-host", "Units now")["transformations"][1]["options"]["renameByName"].values())
    assert names[:3] == ["state", "wanted", "a start now"]
    checks = {column("Units now", name): {row(UNIT): CANNOT_TELL} for name in names}
    answers(tmp_path, {f"llmhost_unit_info{{{UNIT}}}": 1}, checks)


def test_a_units_row_says_what_is_known(tmp_path: Path) -> None:
    strange = f'{A},unit="docker.service",manager="system"'  # it is not watched
    gpu = 'gpu="0",uuid="GPU-0"'
    series: Series = {
        f'llmhost_unit_info{{{UNIT},kill_mode="process"}}': 1,
        f'llmhost_unit_active_state{{{UNIT},state="active"}}': 1,
        f'llmhost_unit_starts_total{{{UNIT},trigger="auto",verdict="clean"}}': "1x29 3x50",
        f'llmhost_unit_failures_total{{{UNIT},result="signal"}}': "1x29 2x50",
        f'llmhost_gpu_holder_memory_bytes{{{UNIT},{gpu},kind="current"}}': 5,
        f'llmhost_gpu_holder_memory_bytes{{{UNIT},{gpu},kind="leftover"}}': 2,
        f'llmhost_gpu_holder_memory_bytes{{{strange},{gpu},kind="current"}}': 9,
    }
    expected = {"state": 1, "a start now": IT_IS_UP, "restarts, 1 h": 2, "failures, 1 h": 1, "holds": 7}
    checks = {column("Units now", name): {row(UNIT): float(value)} for name, value in expected.items()}
    answers(tmp_path, series, checks, at="40m")


def test_a_unit_that_starts_or_stops_is_not_said_to_be_up(tmp_path: Path) -> None:
    series: Series = {}
    shown = {}
    for unit, (active, sub, code) in {
        "up": ("active", "running", IT_IS_UP),
        "guarding": ("activating", "start-pre", UNDER_WAY),  # its guard may wait for memory
        "stopping": ("deactivating", "stop-sigterm", UNDER_WAY),
        "waiting": ("activating", "auto-restart", CANNOT_TELL),
        "failed": ("failed", "failed", CANNOT_TELL),
    }.items():
        labels = f'{A},unit="{unit}.service",manager="system"'
        series[f"llmhost_unit_info{{{labels}}}"] = 1
        series[f'llmhost_unit_active_state{{{labels},state="{active}"}}'] = 1
        series[f'llmhost_unit_sub_state{{{labels},state="{sub}"}}'] = 1
        shown[row(labels)] = float(code)
    answers(tmp_path, series, {column("Units now", "a start now"): shown})


def test_a_gpu_that_does_not_answer_is_seen_in_the_banner(tmp_path: Path) -> None:
    """Memory that is stuck there is in no number, and the collector has not failed."""
    series = {**OURS, f"up{{{A}}}": 1, **collector("nvml"), f'llmhost_gpu_up{{{A},gpu="1",uuid="GPU-1"}}': 0}
    answers(tmp_path, series, {query("Is it seen?"): {"{}": 1}})


def test_a_unit_holds_0_only_where_the_holders_of_gpus_are_known(tmp_path: Path) -> None:
    known = f'llmhost_gpu_unattributed_memory_bytes{{{A},gpu="0",uuid="GPU-0"}}'
    holds = column("Units now", "holds")
    answers(tmp_path, {f"llmhost_unit_info{{{UNIT}}}": 1, known: 0}, {holds: {row(UNIT): 0}})


def test_what_a_unit_finds_free_is_that_of_the_fullest_gpu_of_its_set(tmp_path: Path) -> None:
    series: Series = {f'llmhost_gpu_memory_free_bytes{{{A},gpu="{gpu}",uuid="GPU-{gpu}"}}': gpu for gpu in range(4)}
    for gpu in (1, 2):
        series[f'llmhost_unit_gpu_memory_needed_bytes{{{UNIT},gpu="{gpu}",uuid="GPU-{gpu}"}}'] = 10 * gpu
    title = "What units need, and what is free"
    unit = f"{{{UNIT}}}"
    answers(tmp_path, series, {query(title, "A"): {unit: 20}, query(title, "B"): {unit: 1}})


def test_an_exporter_that_is_not_scraped_keeps_its_row(tmp_path: Path) -> None:
    b = 'job="j",instance="b"'
    series: Series = {
        **OURS,
        f"up{{{A}}}": 1,
        f"up{{{b}}}": 0,
        'up{job="node",instance="a"}': 1,
        f"llmhost_config_reload_success{{{A}}}": 0,
        f"llmhost_driver_mismatch{{{A}}}": 1,
    }
    expected = {"scraped": (1, 0), "config": (0, CANNOT_TELL), "driver": (1, CANNOT_TELL)}
    checks = {
        column("Exporters now", name): {f"{{{A}}}": float(of_a), f"{{{b}}}": float(of_b)}
        for name, (of_a, of_b) in expected.items()
    }
    answers(tmp_path, series, checks)


def test_an_alert_that_fires_has_a_row_also_where_its_beginning_is_unknown(tmp_path: Path) -> None:
    def alert(name: str, severity: str = "critical") -> str:
        return f'{A},alertname="Llmhost{name}",severity="{severity}"'

    series: Series = {
        f'ALERTS{{{alert("GpuLost")},gpu="3",alertstate="firing"}}': 1,
        f'ALERTS_FOR_STATE{{{alert("GpuLost")},gpu="3"}}': 1700,
        f'ALERTS{{{alert("UnitDown")},unit="v.service",alertstate="firing"}}': 1,
        f'ALERTS{{{alert("EngineHung")},unit="v.service",alertstate="pending"}}': 1,
        f'ALERTS_FOR_STATE{{{alert("EngineHung")},unit="v.service"}}': 1800,
        f'ALERTS{{{alert("UnitMissing", "warning")},alertstate="firing"}}': 1,
        f'ALERTS{{{alert("StaleSegments", "info")},alertstate="firing"}}': 1,
        f'ALERTS{{{alert("Own", "page")},alertstate="firing"}}': 1,
        f'ALERTS{{{alert("Watchdog", "none")},alertstate="firing"}}': 1,
    }
    rows = [
        f'{{instance="a",alertname="Llmhost{what}}}'
        for what in ('GpuLost",gpu="3"', 'UnitDown",unit="v.service"', 'UnitMissing"', 'StaleSegments"', 'Own"')
    ]
    # What pages, then tickets, then what is only to be read; last what somebody has made of them.
    expected = {"severity": (3, 3, 2, 1, 0), "since": (1_700_000, *[CANNOT_TELL] * 4)}
    checks = {
        column("Alerts that fire", name): dict(zip(rows, map(float, values), strict=True))
        for name, values in expected.items()
    }
    answers(tmp_path, series, checks)
