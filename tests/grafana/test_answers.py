"""Boards over written histories: each query runs, and answers wherever there is something to show.

A panel without data is listed in SILENT, for the views in which that is the truth; every other one must answer.
"""

import re
from collections import Counter
from collections.abc import Mapping

import pytest
from tests.grafana.boards import BOARDS, dictionaries, targets
from tests.grafana.histories.incident import CRASH, EMBED, ENDS, GLM, RESTARTS, START
from tests.grafana.histories.series import DAY, END
from tests.grafana.views import Answer, View, chosen, empty, opened

FIRST, SECOND, THIRD, LOOPING, SPARK = (
    f"{name}.example.com:10061" for name in ("gpu-1", "gpu-2", "gpu-3", "gpu-03", "spark-1")
)


def _view(history: str, now: int, unit: str = "", *instances: str) -> View:
    return View(history, now, (("cluster", ("tokyo",)), ("instance", instances), ("unit", (unit,))) if unit else ())


VIEWS = {
    "height": _view("incident", 11_430, GLM, FIRST),  # the sixth restart loads, in vain
    "over": _view("incident", 21_600, GLM, FIRST),
    "quiet": _view("quiet", 86_400),
    "quiet hosts": _view("quiet", 86_400, "vllm.service", FIRST, SECOND),
    "hung": _view("lost_gpu", 8_700),
    "failed": _view("lost_gpu", 14_400),
    "blind": _view("blind", 14_400),
    "blind hosts": _view("blind", 14_400, "vllm.service", FIRST, SECOND, THIRD),
    "fleet": _view("fleet", 21_540),
    "looping": _view("fleet", 21_540, "vllm.service", LOOPING),
    "absences": _view("absences", 7_200, "vllm.service", SPARK),
}

# What the board, and time, have nothing of.
_RANKS = {f"{what} by data-parallel rank" for what in ("Tokens", "Requests", "KV cache")}
_ENGINE_NOW = {"Generated", "Requests", "KV cache"}
_LOOPS, _LOOPED, _STUCK = {"Who loops"}, {"Units that looped"}, {"Where memory is stuck"}
_LOST, _BLIND = {"Hours lost, time shown"}, {"Blind hosts"}
_GUARD = {"How long the guard waited", "Runs of the guard by what it found"}
_FIRING, _PAGES = {"Alerts that fire"}, {"annotation Pages"}
_RESIDENT, _IN_THE_WAY = {"annotation Starts that found memory held"}, {"In the way of the last start"}
_XIDS = {"annotation XIDs", "XID errors"}
_DROPPED, _ORPHAN, _FAILURES = {"Series left out, per second"}, {"Oldest orphan"}, {"Failures by result/A"}
_HOLDERS = {"Who holds GPU memory"}
_ENGINES = {panel["title"] for panel, _ in targets(BOARDS["llmhost-engines"])}


SILENT: Mapping[tuple[str, str], set[str]] = {
    ("height", "engines"): _RANKS | _ENGINE_NOW,  # glm's, which loads
    ("height", "fleet"): _BLIND,
    ("height", "host"): _DROPPED,
    ("height", "incident"): _GUARD,
    ("over", "engines"): _RANKS,
    ("over", "fleet"): _BLIND | _STUCK | _LOOPS,
    ("over", "host"): _DROPPED | _FIRING,
    ("over", "incident"): _FIRING,
    ("quiet", "engines"): _RANKS | _PAGES,
    ("quiet", "fleet"): _BLIND | _STUCK | _LOOPS | _LOOPED,
    ("quiet hosts", "host"): _DROPPED | _FIRING | _PAGES | _XIDS | _ORPHAN,
    ("quiet", "incident"): _FIRING | _PAGES | _XIDS - {"XID errors"} | _RESIDENT | _FAILURES | _IN_THE_WAY,
    ("hung", "engines"): _RANKS | {"From start to first answer/B"},  # of what loads
    ("hung", "fleet"): _BLIND | _STUCK | _LOOPS | _LOOPED | _LOST,
    ("hung", "host"): _DROPPED | _ORPHAN,
    ("hung", "incident"): _GUARD | _RESIDENT | _FAILURES | _IN_THE_WAY,
    ("failed", "engines"): _RANKS | _ENGINE_NOW | {"Servers up", "… silent", "… loading"},  # none is asked
    ("failed", "fleet"): _BLIND | _STUCK | _LOOPS | {"Generated"},
    ("failed", "host"): _DROPPED | _ORPHAN | _HOLDERS,
    ("failed", "incident"): _GUARD | _RESIDENT | _IN_THE_WAY | _HOLDERS,
    ("blind", "engines"): _RANKS | {"From start to first answer/B"},
    ("blind", "fleet"): _STUCK | _LOOPS | _LOOPED | _LOST,
    ("blind hosts", "host"): _XIDS | _ORPHAN,
    # The first host is the dead one: of now nothing is told but that it cannot be seen, and its page.
    ("blind", "incident"): _GUARD
    | _RESIDENT
    | _XIDS - {"XID errors"}
    | _FAILURES
    | _IN_THE_WAY
    | _HOLDERS
    | {"State", "Since", "Restarts, 1 h", "… resident", "Stuck", "A start now", "Engine"},
    ("fleet", "fleet"): set(),
    # No engine is found: how long loads may take is all there is, and that the units are not down.
    ("absences", "engines"): _ENGINES - {"Is it seen?", "Units down", "From start to first answer"}
    | {"From start to first answer/A", "From start to first answer/B", "annotation Pages"},
    # Of unified memory, holders are known, and no more. A need, or what is stuck, is not told.
    ("absences", "fleet"): _BLIND
    | _STUCK
    | _LOOPS
    | _LOOPED
    | _LOST
    | {"Generated", "Tokens generated", "Prompt tokens"}
    | {"Stuck memory", "Stuck memory over time", "GPU memory by kind of holder/B"},
    ("absences", "host"): _DROPPED
    | _FIRING
    | _PAGES
    | _XIDS
    | _ORPHAN
    | {"Whether engines answer", "Tokens", "Requests", "KV cache in use"}
    | {"Stuck", "GPU $gpu/B", "Memory that nobody holds/A", "What units need, and what is free", "NVLink fabric"},
    ("absences", "incident"): _GUARD
    | _FIRING
    | _PAGES
    | _XIDS - {"XID errors"}
    | _RESIDENT
    | _FAILURES
    | _IN_THE_WAY
    | {"Engine", "Tokens", "Requests", "Stuck", "GPU $gpu/B"}
    | {"GPU memory of the host by kind of holder/B", "GPU memory of the host by kind of holder/C"},
}


@pytest.mark.parametrize(("view", "board"), SILENT)
def test_a_board_answers_wherever_there_is_something_to_show(view: str, board: str) -> None:
    assert empty(opened(VIEWS[view], f"llmhost-{board}")) == SILENT[view, board]


def answers_of(uid: str) -> dict[tuple[str, str], list[Answer]]:
    """Give the answers of all views by title and refId."""
    found: dict[tuple[str, str], list[Answer]] = {}
    for view, board in SILENT:
        if f"llmhost-{board}" == uid:
            for key, answers in opened(VIEWS[view], uid).items():
                found.setdefault(key, []).extend(answers)
    return found


def labels_of(answers: list[Answer]) -> set[str]:
    return {label for answer in answers for label, _ in answer.labels}


@pytest.mark.parametrize("uid", BOARDS)
def test_every_panel_answers_in_some_view(uid: str) -> None:
    """Those of several data-parallel ranks do so in test_engines_board.py."""
    assert {title for (title, _), answers in answers_of(uid).items() if not answers} == (
        _RANKS if uid == "llmhost-engines" else set()
    )


@pytest.mark.parametrize("uid", BOARDS)
def test_queries_keep_the_labels_that_legends_and_annotations_show(uid: str) -> None:
    found = answers_of(uid)
    for panel, target in targets(BOARDS[uid]):
        shown = set(re.findall(r"\{\{(\w+)\}\}", target.get("legendFormat", "")))
        lost = [answer for answer in found[panel["title"], target["refId"]] if shown - dict(answer.labels).keys()]
        assert lost == [], panel["title"]
    for annotation in BOARDS[uid]["annotations"]["list"]:
        shown = set(re.findall(r"\{\{(\w+)\}\}", annotation["titleFormat"] + annotation["textFormat"]))
        assert shown <= labels_of(found[f"annotation {annotation['name']}", "A"]), annotation["name"]


@pytest.mark.parametrize("uid", BOARDS)
def test_links_lead_to_boards_and_choose_by_columns_that_there_are(uid: str) -> None:
    found = answers_of(uid)
    for panel in BOARDS[uid]["panels"]:
        has = {
            label for (title, _), answers in found.items() if title == panel["title"] for label in labels_of(answers)
        }
        for step in panel.get("transformations", []):
            has -= {name for name, removed in step["options"].get("excludeByName", {}).items() if removed}
        for url in [value["url"] for value in dictionaries(panel) if value.get("url", "").startswith("/d/")]:
            leads_to, chosen_there = url.removeprefix("/d/").partition("?")[0], re.findall(r"var-(\w+)=", url)
            assert set(chosen_there) <= {variable["name"] for variable in BOARDS[leads_to]["templating"]["list"]}, url
            assert set(re.findall(r"\$\{__data\.fields\.(\w+)\}", url)) <= has, url


# View, board, panel (and query), the values that it shows at the end, each series', from the least.
NOW: tuple[tuple[str, str, str, list[float]], ...] = (
    # At the incident's height.
    ("height", "incident", "Is it seen?", [2]),
    ("height", "incident", "State", [1]),  # active: it loads
    ("height", "incident", "Since", [(END - 21_600 + RESTARTS[-1]) * 1000]),
    ("height", "incident", "Restarts, 1 h", [6]),
    ("height", "incident", "… resident", [6]),
    ("height", "incident", "Stuck", [8 * 90e9 + 2 * 2e9]),
    # orphans, embed's, leftovers of 7 GPUs, nobody's on GPU 6
    ("height", "incident", "Who holds GPU memory", [2e9, 2e9, 5e9, *[90e9] * 8]),
    ("height", "incident", "GPU memory of the host by kind of holder", [4e9, 5e9, 90e9, 630e9]),
    ("height", "incident", "In the way of the last start", [4e9, 5e9, 720e9]),
    ("height", "incident", "GPU $gpu", [*[0] * 7, 2e9, 2e9, 5e9, *[90e9] * 8]),  # 0: nobody's, of the other GPUs
    ("height", "host", "Stuck", [724e9]),
    ("height", "host", "Who holds GPU memory", [2e9, 2e9, 5e9, *[90e9] * 8]),
    # embed and glm: restarts and failures, processes left, memory
    ("height", "host", "Units now/D", [0, 6]),
    ("height", "host", "Units now/E", [0, 6]),
    ("height", "host", "Units now/F", [0, 8]),
    ("height", "host", "Units now/G", [5e9, 630e9]),
    ("height", "host", "Units now/H", [(END - 21_600 + second) * 1000 for second in (-3 * DAY, RESTARTS[-1])]),
    ("height", "host", "Files in /dev/shm now", [11, 25]),
    ("height", "host", "Files in /dev/shm now/C", [12, 18]),
    ("height", "host", "Used in /dev/shm", [23 * 40_960 + 43 * 4096]),
    ("height", "host", "Restarts, 1 h", [6]),
    ("height", "host", "Stale files", [6 * 5]),  # of the ends until a minute ago
    ("height", "host", "Resource trackers", [0, 0, 2, 6]),
    ("height", "fleet", "Units that loop", [1]),
    ("height", "fleet", "… resident", [1]),
    ("height", "fleet", "Stuck memory", [724e9]),
    ("height", "fleet", "Lost", [1]),
    # Afterwards.
    ("over", "incident", "Engine", [1]),  # ok
    ("over", "incident", "How long the guard waited", [41]),
    ("over", "incident", "Stuck", [0]),
    ("over", "engines", "From start to first answer", [540]),
    ("over", "fleet", "Lost", [0]),
    # A quiet day: two hosts, three units, one of which nobody wants.
    ("quiet hosts", "host", "Not seen", [0]),
    ("quiet hosts", "host", "Not seen/B", [0]),
    ("quiet hosts", "host", "GPUs", [4]),
    ("quiet hosts", "host", "… missing", [0]),
    ("quiet hosts", "host", "Units down", [0]),
    ("quiet hosts", "host", "Restarts, 1 h", [0]),
    ("quiet hosts", "host", "Stuck", [0]),
    ("quiet hosts", "host", "Stale files", [0]),
    ("quiet hosts", "host", "Units now", [1, 1, 7]),
    ("quiet hosts", "host", "Units now/B", [0, 1, 1]),
    ("quiet hosts", "host", "Units now/C", [-1, -1, 0]),  # two are up; the third would not find room
    ("quiet", "fleet", "Hosts", [2]),
    ("quiet", "fleet", "Wanted", [2]),
    ("quiet", "fleet", "Generated", [1600]),
    # A lost GPU: the engine hangs, then its unit has failed.
    ("hung", "engines", "Generated", [0]),
    ("hung", "engines", "Requests", [24]),
    # All but these two numbers of the incident's banner are calm then.
    ("hung", "incident", "Is it seen?", [1]),
    ("hung", "incident", "Engine", [3]),  # it hangs
    ("hung", "incident", "State", [1]),
    ("hung", "host", "GPUs", [7]),
    ("hung", "host", "GPUs/B", [8]),
    ("hung", "host", "… missing", [1]),
    ("failed", "host", "Units down", [1]),
    ("failed", "incident", "State", [8]),
    ("failed", "incident", "A start now", [0]),
    # Trouble in each banner, though nothing else is told of it.
    ("blind", "incident", "Is it seen?", [0]),
    ("blind hosts", "host", "Is it seen?", [0]),
    ("blind hosts", "host", "Not seen", [1]),
    ("blind hosts", "host", "Not seen/B", [1]),
    ("blind", "engines", "Is it seen?", [0]),
    ("blind", "fleet", "Blind", [2]),
    ("blind hosts", "host", "Exporters now", [0, 1, 1]),
    ("blind hosts", "host", "Exporters now/C", [-2, 1, 1]),  # -2: it cannot be told
    ("blind hosts", "host", "Exporters now/E", [-2, -2, 0]),
    # The fleet.
    ("fleet", "fleet", "Hosts", [40]),
    ("fleet", "fleet", "Blind", [1]),
    ("fleet", "fleet", "Wanted", [38]),  # not the stopped one, nor what the blind host has
    ("fleet", "fleet", "Lost", [3]),
    ("fleet", "fleet", "Units that loop", [3]),
    ("fleet", "fleet", "… resident", [1]),
    ("fleet", "fleet", "Stuck memory", [130e9]),
    ("fleet", "fleet", "Where memory is stuck", [60e9, 70e9]),
    ("fleet", "fleet", "Generated", [35 * 500]),
    # of either cluster: hosts, blind, wanted, lost, automatic starts, stuck memory, tokens/s
    ("fleet", "fleet", "Clusters", [20, 20]),
    ("fleet", "fleet", "Clusters/B", [0, 1]),
    ("fleet", "fleet", "Clusters/C", [19, 19]),
    ("fleet", "fleet", "Clusters/D", [1, 2]),
    ("fleet", "fleet", "Clusters/E", [6, 12]),
    ("fleet", "fleet", "Clusters/F", [60e9, 70e9]),
    ("fleet", "fleet", "Clusters/G", [8_500, 9_000]),
    ("looping", "incident", "Restarts, 1 h", [6]),
    ("looping", "incident", "… resident", [6]),
)


@pytest.mark.parametrize(("view", "board", "panel", "values"), NOW)
def test_a_panel_shows_what_is_known(view: str, board: str, panel: str, values: list[float]) -> None:
    titled = re.fullmatch(r"(.+?)(?:/([A-Z]))?", panel)
    assert titled
    found = opened(VIEWS[view], f"llmhost-{board}")[titled[1], titled[2] or "A"]
    assert sorted(answer.values[-1] for answer in found if answer.lasts) == pytest.approx(values)


@pytest.mark.parametrize(
    ("view", "board", "panel", "labels", "spans"),
    [
        # 7 waits to restart are seen, 2 scrapes in start-pre, and 77 while it is stopped: 11490 to 13770.
        ("over", "incident", "What the unit was doing", {}, {1: 635, 4: 2, 6: 7, 7: 77}),
        # 6 waits, and failed from 10230 on.
        ("failed", "host", "What the units were doing", {}, {1: 335, 6: 6, 8: 140}),
        ("failed", "host", "Whether GPUs answer", {"gpu": "4"}, {1: 481}),
        ("failed", "host", "Whether GPUs answer", {"gpu": "5"}, {1: 240, 17: 241}),  # lost at 7200
        ("blind hosts", "host", "Whether collectors succeed", {"collector": "nvml", "instance": FIRST}, {1: 240}),
        (
            "blind hosts",
            "host",
            "Whether collectors succeed",
            {"collector": "nvml", "instance": THIRD},
            {1: 180, 14: 301},
        ),
    ],
)
def test_a_timeline_shows_each_state_for_as_long_as_it_lasted(
    view: str, board: str, panel: str, labels: Mapping[str, str], spans: Mapping[int, int]
) -> None:
    """Each view has a step of 30 s, as long as scrapes are apart."""
    found = opened(VIEWS[view], f"llmhost-{board}")[panel, "A"]
    (answer,) = (answer for answer in found if labels.items() <= dict(answer.labels).items())
    assert Counter(answer.values) == spans


@pytest.mark.parametrize(("instance", "answers"), [(FIRST, 0), (SECOND, 2), (THIRD, 1)])
@pytest.mark.parametrize("board", ["incident", "host", "engines"])
def test_a_banner_says_whether_its_host_can_be_seen(board: str, instance: str, answers: int) -> None:
    view = _view("blind", 14_400, "vllm.service", instance)
    assert [answer.values[0] for answer in opened(view, f"llmhost-{board}")["Is it seen?", "A"]] == [answers]


@pytest.mark.parametrize(
    ("view", "panel", "label", "counted"),
    [
        ("height", "Starts by what they found", "verdict", {"resident": 6, "clean": 0, "unknown": 0, "not_started": 0}),
        ("over", "Starts by what they found", "verdict", {"resident": 6, "clean": 1, "unknown": 0, "not_started": 0}),
        ("height", "Failures by result", "result", {"exit-code": 6}),
        ("over", "Failures by result", "result", {"exit-code": len(ENDS)}),
        ("quiet", "Starts by what they found", "verdict", {"resident": 0, "clean": 1, "unknown": 0, "not_started": 0}),
        # The guard's first run in this boot: before it there was no such counter.
        ("over", "Runs of the guard by what it found", "verdict", {"free": 1, "held": 0, "unknown": 0, "fault": 0}),
        ("failed", "Failures by result", "result", {"watchdog": 1, "exit-code": 5, "start-limit-hit": 1}),
    ],
)
def test_bars_count_each_event_once(view: str, panel: str, label: str, counted: Mapping[str, int]) -> None:
    found = opened(VIEWS[view], "llmhost-incident")[panel, "A"]
    assert {dict(answer.labels)[label]: sum(answer.values) for answer in found} == counted


@pytest.mark.parametrize(
    ("view", "since"),
    [
        (
            "height",
            {
                "LlmhostRestartLoop": 10_950,
                "LlmhostRestartedWhileMemoryResident": 10_830,
                "LlmhostEndlessLoop": 11_070,
                "LlmhostMemoryHeldByDownUnit": 10_800,
                "LlmhostMemoryHeldByOrphan": 11_040,
                "LlmhostOrphanEngines": 11_040,
                "LlmhostXidApplication": 10_800,
            },
        ),
        ("failed", {"LlmhostGpuLost": 7_200, "LlmhostUnitDown": 10_200, "LlmhostStartWouldBeRefused": 10_200}),
        ("blind", {"LlmhostExporterDown": 7_200}),
    ],
)
def test_the_board_of_an_incident_says_what_fires_and_since_when(view: str, since: Mapping[str, int]) -> None:
    began = VIEWS[view].prometheus.began
    found = opened(VIEWS[view], "llmhost-incident")["Alerts that fire", "B"]
    assert {dict(answer.labels)["alertname"]: answer.values[0] / 1000 - began for answer in found} == since


@pytest.mark.parametrize(
    ("view", "hours"),
    [
        ("over", [41 * 30 / 3600]),  # 10800 to 11460, 13800 to 14310
        ("quiet", [6 * 60 / 3600]),  # 36060 to 36360
        ("fleet", [4] * 3),  # since 7200
    ],
)
def test_hours_are_lost_while_a_unit_that_is_wanted_does_not_serve(view: str, hours: list[float]) -> None:
    found = opened(VIEWS[view], "llmhost-fleet")["Hours lost, time shown", "A"]
    assert [answer.values[0] for answer in found] == pytest.approx(hours, rel=0.01)


def test_annotations_mark_each_moment_once() -> None:
    began = VIEWS["over"].prometheus.began
    answers = opened(VIEWS["over"], "llmhost-incident")

    def marked(name: str) -> set[float]:
        found = answers[f"annotation {name}", "A"]
        return {value / 1000 - began for answer in found for value in answer.values}

    assert marked("Starts that found memory held") == set(RESTARTS)
    assert marked("Starts") == {-3 * DAY, *RESTARTS, START}
    assert marked("XIDs") == {CRASH}
    assert marked("Pages") == {10_830, 10_950}


def test_no_panel_of_the_fleet_draws_all_hosts_or_units() -> None:
    found = answers_of("llmhost-fleet")
    for panel, target in targets(BOARDS["llmhost-fleet"]):
        few = "topk(" in target["expr"]
        assert few or "instance" not in labels_of(found[panel["title"], target["refId"]]), panel["title"]


def test_variables_find_what_there_is() -> None:
    found = chosen(View("fleet", 21_540), "llmhost-engines")
    assert found["cluster"].values == ("osaka", "tokyo")
    assert found["instance"].values == tuple(f"gpu-{number:02}.example.com:10061" for number in range(1, 21))
    assert chosen(View("quiet", 86_400), "llmhost-engines")["model"].values == ("llama-70b",)
    incident = chosen(View("incident", 21_600), "llmhost-incident")
    assert incident["unit"].values == (EMBED,)  # one that was not asked for: the first
    assert chosen(VIEWS["over"], "llmhost-incident")["unit"].in_query() == r"vllm@glm\\.service"
    # The dead host can be chosen still: it was there in the time shown.
    assert len(chosen(VIEWS["blind"], "llmhost-engines")["instance"].values) == 3
