"""Queries of the fleet board, answered by promtool from a few recorded series; the answers are worked out by hand."""

from pathlib import Path

from tests.fakes.backfilled import shared
from tests.grafana.boards import CANNOT_TELL, Series, answers, column, query, stats

BOARD = "llmhost-fleet"
CLUSTER = 'cluster="c",job="j"'
A, B = f'{CLUSTER},instance="a"', f'{CLUSTER},instance="b"'
BANNER = [stat["title"] for stat in stats(BOARD)]
LOOPS = ("instance_unit:llmhost_unit_automatic_starts:delta1h", "instance_unit:llmhost_unit_failures:delta1h")
RESIDENT = "instance_unit:llmhost_unit_automatic_resident_starts:delta1h"
LOST = "instance_unit:llmhost_unit_lost:bool"
KINDS = "instance_kind:llmhost_gpu_holder_memory_bytes:sum"


def unit(name: str, host: str = A) -> str:
    return f'{host},unit="{name}.service",manager="system"'


def test_the_banner_counts_what_is_wrong(tmp_path: Path) -> None:
    series: Series = {
        f"instance:llmhost_blind:bool{{{A}}}": 0,
        f"instance:llmhost_blind:bool{{{B}}}": 1,
        'instance:llmhost_blind:bool{cluster="d",job="j",instance="a"}': 1,
        f"cluster:llmhost_blind:sum{{{CLUSTER}}}": 1,
        'cluster:llmhost_blind:sum{cluster="d",job="j"}': 1,
        f"cluster:llmhost_unit_wanted:sum{{{CLUSTER}}}": 5,
        f"cluster:llmhost_unit_lost:sum{{{CLUSTER}}}": "0x29 2x60",
        f"{LOOPS[0]}{{{unit('one')}}}": 1,
        f"{LOOPS[0]}{{{unit('two')}}}": 2,
        f"{LOOPS[0]}{{{unit('two', B)}}}": 9,
        f"{RESIDENT}{{{unit('one')}}}": 1,  # loops not
        f"{RESIDENT}{{{unit('two')}}}": 0,
        f"{RESIDENT}{{{unit('two', B)}}}": 1,
        f"cluster:llmhost_gpu_stuck_memory_bytes:sum{{{CLUSTER}}}": 3_000_000_000,
        f'{KINDS}{{{A},kind="unattributed"}}': 5,
        f'cluster_model:llmhost_engine_generation_tokens:rate5m{{{CLUSTER},model="m"}}': 100,
        f'cluster_model:llmhost_engine_generation_tokens:rate5m{{{CLUSTER},model=""}}': 50,
    }
    expected = {
        "Rules": 2,
        "Hosts": 3,
        "Blind": 2,
        "Stuck memory": 3_000_000_000,
        "Generated": 150,
        "Wanted": 5,
        "Lost": 2,
        # Of 46 samples in 45 minutes, the last 16 say 2.
        "… hours": 2 * 16 * (45 * 60 / 46) / 3600,
        "Units that loop": 2,
        "… resident": 1,
    }
    assert list(expected) == BANNER
    answers(tmp_path, series, {query(BOARD, title): {"{}": value} for title, value in expected.items()}, at="45m")


def test_the_banner_says_0_where_all_is_well(tmp_path: Path) -> None:
    series: Series = {
        f"instance:llmhost_blind:bool{{{A}}}": 0,
        f"cluster:llmhost_blind:sum{{{CLUSTER}}}": 0,
        f"cluster:llmhost_unit_lost:sum{{{CLUSTER}}}": 0,
        f"{LOOPS[0]}{{{unit('v')}}}": 1,
        f"{RESIDENT}{{{unit('v')}}}": 1,
        f'{KINDS}{{{A},kind="unattributed"}}': 7,
    }
    titles = ("Blind", "Lost", "… hours", "Units that loop", "… resident", "Stuck memory")
    answers(tmp_path, series, {query(BOARD, title): {"{}": 0} for title in titles})


def test_where_nothing_is_recorded_one_panel_says_so_and_no_other_anything(tmp_path: Path) -> None:
    found: dict[str, dict[str, float]] = {query(BOARD, title): {} for title in BANNER}
    answers(tmp_path, {f"llmhost_build_info{{{A}}}": 1}, {**found, query(BOARD, "Rules"): {"{}": 0}})


def test_recorded_series_are_old_after_two_minutes_and_none_after_five(tmp_path: Path) -> None:
    series: Series = {f"instance:llmhost_blind:bool{{{A}}}": "0x10"}
    for minute, code in ((12, 2), (13, 1), (14, 1), (16, 0)):
        answers(tmp_path, series, {query(BOARD, "Rules"): {"{}": code}}, at=f"{minute}m")


def test_stuck_memory_is_not_shown_for_hosts_without_memory_series(tmp_path: Path) -> None:
    series: Series = {f'{KINDS}{{{A},kind="current"}}': 7, f"instance:llmhost_blind:bool{{{A}}}": 0}
    by_cluster = {'{cluster="c"}': float(CANNOT_TELL)}
    answers(
        tmp_path,
        series,
        {
            query(BOARD, "Stuck memory"): {},
            column(BOARD, "Clusters", "stuck"): by_cluster,
            column(BOARD, "Clusters", "lost"): by_cluster,
        },
    )


def test_only_units_that_loop_have_rows_and_keep_them_where_something_is_not_known(tmp_path: Path) -> None:
    loops, held = unit("loops"), unit("held", 'job="j",instance="b"')
    series: Series = {
        f"{LOOPS[0]}{{{loops}}}": 2,
        f"{LOOPS[0]}{{{held}}}": 7,
        f"{LOOPS[0]}{{{unit('well')}}}": 1,
        f"{RESIDENT}{{{held}}}": 5,
        f"{RESIDENT}{{{unit('well')}}}": 1,
        f"{LOOPS[1]}{{{loops}}}": 3,
        f"instance_unit:llmhost_unit_state:code{{{held}}}": 6,
        f"instance_unit:llmhost_unit_state:code{{{unit('well')}}}": 1,
    }
    # Where there is no label of the cluster, links choose All.
    rows = (f"{{{loops}}}", f'{{cluster="All",{held}}}')
    expected = {
        "state": (CANNOT_TELL, 6),
        "starts 1 h": (2, 7),
        "memory held": (CANNOT_TELL, 5),
        "failures 1 h": (3, CANNOT_TELL),
    }
    checks = {
        column(BOARD, "Who loops", name): dict(zip(rows, map(float, values), strict=True))
        for name, values in expected.items()
    }
    answers(tmp_path, series, checks)


def test_hours_are_lost_for_what_is_recorded_alone(tmp_path: Path) -> None:
    """A unit that is new, or was not seen for a while, has no more than its own time."""
    always, new, well = unit("always"), unit("new"), unit("well")
    series: Series = {
        f"cluster:llmhost_blind:sum{{{CLUSTER}}}": 0,
        f"{LOST}{{{always}}}": 1,
        f"{LOST}{{{new}}}": "_x29 1x8 0x20",  # from minute 29 on
        f"{LOST}{{{well}}}": 0,
    }
    of_a_sample = 45 * 60 / 46  # seconds, of 46 samples in 45 minutes
    lost = {f"{{{always}}}": 46 * of_a_sample / 3600, f"{{{new}}}": 9 * of_a_sample / 3600}
    share = {f"{{{always}}}": 1.0, f"{{{new}}}": 9 / 17}
    title = "Hours lost, time shown"
    answers(tmp_path, series, {column(BOARD, title, "lost"): lost, column(BOARD, title, "share"): share}, at="45m")


def test_only_hosts_that_are_blind_now_have_rows(tmp_path: Path) -> None:
    series: Series = {
        f"cluster:llmhost_blind:sum{{{CLUSTER}}}": 1,
        f"instance:llmhost_blind:bool{{{A}}}": "1x44 0x10",
        f"instance:llmhost_blind:bool{{{B}}}": "0x29 1x40",
    }
    found = {f"{{{B}}}": 16 * (45 * 60 / 46) / 3600}
    answers(tmp_path, series, {query(BOARD, "Blind hosts"): found}, at="45m")


def test_units_that_looped_are_shown_with_all_that_they_did(tmp_path: Path) -> None:
    looped, twice = unit("looped"), unit("twice")
    series: Series = {
        f"{LOOPS[0]}{{{looped}}}": "0x9 4x9 0x60",
        f"{LOOPS[0]}{{{twice}}}": "0x59 2x9",
        f"{LOOPS[0]}{{{unit('well')}}}": 1,
        **{f"instance_unit:llmhost_unit_state:code{{{labels}}}": 1 for labels in (looped, twice, unit("well"))},
    }
    shown = query(BOARD, "Units that looped")
    answers(tmp_path, series, {shown: {f"{{{looped}}}": 1, f"{{{twice}}}": 1}}, at="65m")
    # Also before they looped, which three of this fleet do from its third hour on.
    found = shared("fleet").over(0, 6 * 3600, 60, shown)
    hosts = {series["metric"]["instance"].partition(".")[0]: series["values"] for series in found}
    assert hosts.keys() == {"gpu-03", "gpu-07", "gpu-11"}
    assert {len(values) for values in hosts.values()} == {361}
    assert {values[0][1] for values in hosts.values()} == {"1"}
