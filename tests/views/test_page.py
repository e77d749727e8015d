"""The status page: what it says, whatever names there are, and that it is sound HTML which needs nothing else."""

import re
from dataclasses import replace

import pytest
from tests.architecture.checkout import ROOT
from tests.fakes.hostile_names import NAMES, view_of
from tests.fakes.html_page import Element, parsed
from tests.fakes.status_page import text_of, written
from tests.fakes.values import GIB, HOST, gpu, held, in_service, memory, process, snapshot, started, unit
from tests.hosts.written import EPOCH

from llmhost.config.schema import Config
from llmhost.derive.host_view import HostView, host_view
from llmhost.model.history.history import History
from llmhost.model.history.unit_history import End, Start, Trigger, UnitHistory, Verdict
from llmhost.model.ids import UnitId
from llmhost.model.reading import Cause, Failed, Ok
from llmhost.model.unit import Unit
from llmhost.views.page.document import RUNBOOK_PARTS
from llmhost.views.page.markup import Markup, joined, tag

HOSTILE = [
    *NAMES,
    '"><script>document.title="taken"</script>.service',
    "'onload='alert(1)'.service",
    "</style></script></main><img src=x onerror=alert(1)>.service",
    "&lt;b&gt;&amp;amp;.service",
    "a\u202egpj.ecivres\u2066\u200b\ufeff.service",  # the name of a picture, to who reads it
    "a\udcff\ud800\x00\x85\u2028.service",  # what no encoding has, and more ends of lines
    "שלום.service",
]
HOSTS = re.findall(
    r"\S+",
    "bus-down driver-hung engine-of-each-kind foreign-pid-namespace left-over-by-many mig no-gpu "
    "settings-that-go-wrong shm-of-64-mib unified-memory",
)
TAGS = set(
    re.findall(
        r"\S+",
        "html head meta title style body header h1 h2 h3 p time span noscript a main section ul ol li strong svg rect "
        "bdi article figure figcaption details summary code pre footer nav script",
    )
)
ATTRIBUTES = set(
    re.findall(
        r"\S+",
        "lang charset name content id class href hidden role datetime width height x y data-age data-build aria-label "
        "aria-labelledby aria-hidden",
    )
)


def checked(text: str) -> Element:
    """Hold a page to what all of them keep; gives it parsed."""
    assert text.startswith("<!DOCTYPE html>\n<html")
    text.encode()
    page = parsed(text.removeprefix("<!DOCTYPE html>\n"))
    ids = [element.attributes["id"] for element in page.all() if "id" in element.attributes]
    assert len(set(ids)) == len(ids)
    for element in page.all():
        assert element.tag in TAGS
        assert element.attributes.keys() <= ATTRIBUTES, f"<{element.tag} {element.attributes}>"
        to = element.attributes.get("href") or ""
        assert not to.startswith("#") or to[1:] in ids
        assert to.startswith(("#", "https://github.com/llmhost/llmhost")) or to in {"", "./", "metrics", "api/status"}
        said = [child for child in element.children if isinstance(child, str)]
        if element.tag not in {"style", "script", "pre"}:
            assert all(character.isprintable() for character in said if character != "\n"), said
    assert len(page.all("script")) == len(page.all("style")) == 1
    return page


@pytest.mark.parametrize("name", HOSTS)
def test_the_page_of_each_written_host_is_sound(name: str) -> None:
    page = checked(text_of(written(name)))
    headline = page.find(id="headline").text
    assert headline in {"healthy", "not healthy", "cannot tell whether all is well"}
    assert page.find("title").text.startswith(headline)


@pytest.mark.parametrize("name", HOSTILE)
def test_no_name_becomes_more_than_text(name: str) -> None:
    tame, hostile = (
        checked(text_of(replace(view, history=shifted(view))))
        for view in (view_of("tame.service", host=Ok(HOST)), view_of(name, host=Ok(HOST)))
    )
    assert shape(hostile) == shape(tame)
    shown = "".join(character if character.isprintable() else "?" for character in name)
    assert hostile.find("article").find("h3").text == shown
    assert hostile.find("h3").find("bdi").text == shown


def shifted(view: HostView) -> History:
    """Put the starts into the last day."""
    ((me, record),) = view.history.units.items()
    starts = tuple(replace(start, at=view.snapshot.at - 60) for start in record.starts)
    return replace(view.history, units={me: replace(record, starts=starts)})


def shape(element: Element) -> list[object]:
    """Give the tree without its texts, and of the attributes their names."""
    return [
        element.tag,
        sorted(element.attributes),
        [shape(child) for child in element.children if isinstance(child, Element)],
    ]


def test_what_is_no_markup_is_escaped_however_deep_it_lies() -> None:
    assert (
        tag("p", ["<b>", ["&", tag("i", '"')]], title='"<&>')
        == '<p title="&quot;&lt;&amp;&gt;">&lt;b&gt;&amp;<i>"</i></p>'
    )
    assert tag("p", class_="a", aria_label=None, hidden=True, data_age=1.5) == '<p class="a" hidden data-age="1.5"></p>'
    assert joined(Markup("<b>"), "\n") == "<b>?"


def test_the_incident_is_shown_with_its_places_and_remedies() -> None:
    page = checked(text_of(written("incident")))
    assert page.find("title").text == "not healthy, 2 findings – gpu-host-1 – llmhost"
    first, second = page.find(id="health").all("li")
    assert first.text == (
        "vllm-744b.service: loops: 7th start in 4 min, all failed, the last after 20 s with exit-code; "
        "each restart found too little memory free; waits to be restarted; a start now would fail – what to do"
    )
    alive = "9 processes of ended runs are still alive and hold 733.6 GiB on GPUs 0-7"  # 8 × 93900 MiB
    assert second.text == f"vllm-744b.service: {alive} – what to do"
    (card,) = page.all("article")
    assert [element.attributes["href"] for element in first.all("a")] == [
        f"#{card.attributes['id']}",
        "https://github.com/llmhost/llmhost/blob/main/alerts/README.md#llmhostrestartloop",
    ]
    assert "not startable: GPUs 0-7, each: 3.3 GiB free of 85.5 needed" in [element.text for element in card.all("li")]
    gpus = page.find(id="gpus")
    assert [element.text for element in gpus.all("strong")][::2] == [f"GPU {index}" for index in range(8)]
    bar = gpus.all("svg")[3]
    assert bar.attributes["aria-label"] == "GPU 3: 91.7 of 95.6 GiB used; 91.7 GiB leftover vllm-744b.service"
    free, leftover = bar.all("rect")
    assert free.attributes["width"] == "100%"
    assert (leftover.attributes["class"], leftover.attributes["x"]) == ("kind-leftover", "0.000%")
    assert leftover.attributes["width"] == "95.943%"  # 93900 of 97871 MiB
    assert page.find(id="settings").all("summary")[0].text.startswith("error vllm-744b.service: its start limit")
    assert page.find(id="settings").all("pre")[0].text == "[Unit]\nStartLimitIntervalSec=2h\nStartLimitBurst=5\n"
    assert "orphans: not watched" in page.find(id="untold").text


def test_the_runbook_has_each_part_that_findings_lead_to() -> None:
    headings = re.findall(r"^#+ (.+)$", (ROOT / "alerts/README.md").read_text(encoding="utf-8"), re.MULTILINE)
    assert set(RUNBOOK_PARTS.values()) <= {heading.lower().replace(" ", "-") for heading in headings}


def view(record: UnitHistory, state: tuple[str, str] = ("failed", "failed")) -> HostView:
    me = Unit(
        id=UnitId("a.service"), load_state="loaded", unit_file_state="", active_state=state[0], sub_state=state[1]
    )
    at = snapshot(units=[me], gpus=[], processes=[])
    history = History(units={me.id: record})
    return host_view(at, history, Config())


def start(ago: float, verdict: Verdict | None, ran: float | None = None, **given: object) -> Start:
    at = EPOCH - ago
    end = None if ran is None else End(at=at + ran, result="signal", exec_main_status=9, asked=False, seconds=ran)
    return started(f"{ago}", at=at, trigger=Trigger.AUTO, verdict=verdict, end=end, **given)


def drawn(card: Element, class_: str) -> list[list[float]]:
    return [
        [float((element.attributes.get(key) or "0").rstrip("%")) for key in ("x", "y", "width", "height")]
        for element in card.all("rect", class_=class_)
    ]


def test_the_chart_of_starts_stacks_them_by_quarters_of_an_hour_over_their_runs() -> None:
    # It is midnight, so the axis ends at 00:15: six hours ago is at 1 − 6.25/24 = 73.958 %, in the 71st of 96 quarters.
    starts = (
        start(86_400 - 60, Verdict.CLEAN, ran=43_200.0),  # before the axis begins: 24 h back from 00:15
        start(6 * 3600, Verdict.RESIDENT, ran=30.0),
        start(6 * 3600 - 60, Verdict.RESIDENT, ran=30.0),
        start(6 * 3600 - 120, Verdict.CLEAN, ran=3600.0),
        start(600, Verdict.UNKNOWN),
    )
    (card,) = checked(text_of(view(UnitHistory(last_seen_at=0.0, starts=starts), ("active", "running")))).all("article")
    wide = 1.042  # 100 / 96
    assert drawn(card, "verdict-resident") == [[73.958, 40.0, wide, 40.0]]  # two of the four that the height stands for
    assert drawn(card, "verdict-clean") == [[73.958, 20.0, wide, 20.0]]
    assert drawn(card, "verdict-unknown") == [[97.917, 60.0, wide, 20.0]]
    runs = drawn(card, "run")
    assert runs[0] == [0.0, 86.0, 49.028, 14.0]  # until 12:01, which is 706 of 1440 minutes after the axis begins
    assert runs[3] == [74.097, 86.0, 4.167, 14.0]
    assert runs[4] == [98.264, 86.0, 0.694, 14.0]  # it runs on until now
    assert card.find("svg").attributes["aria-label"] == (
        "Chart of the starts of the last 24 hours: 2 resident, 1 unknown, 1 clean"
    )
    assert [element.text for element in card.find("ol").all("li")][:2] == [
        "23:50:00 UTC, 10 min ago, auto: unknown",
        "18:02:00 UTC, 6 h ago, auto: clean; ended after 60 min with signal",
    ]


def test_where_all_starts_are_of_the_last_hour_the_chart_is_of_that_hour_and_a_loop_is_unfolded() -> None:
    # The axis ends at 00:01: ten minutes ago is at 1 − 11/60 = 81.667 %, in the 50th of 60 minutes.
    first = replace(start(600, Verdict.CLEAN, ran=30.0), trigger=Trigger.MANUAL)
    once = (first, start(570, Verdict.RESIDENT))
    (card,) = checked(text_of(view(UnitHistory(last_seen_at=0.0, starts=once)))).all("article")
    assert drawn(card, "verdict-clean") == [[81.667, 40.0, 1.667, 20.0]]
    assert drawn(card, "verdict-resident") == [[81.667, 60.0, 1.667, 20.0]]
    assert card.find("figcaption").text.startswith("starts of the last hour: 1 resident")
    assert card.find("p", class_="axis").all("span")[0].text == "−60 min"
    assert [len(each.all("li")) for each in card.all("details")] == [2]
    loop = (first, start(500, Verdict.RESIDENT, ran=30.0), start(400, None))
    (card,) = checked(text_of(view(UnitHistory(last_seen_at=0.0, starts=loop)))).all("article")
    assert (len(card.find("ol").all("li")), card.all("details")) == (3, [])
    older = (start(3600, Verdict.CLEAN, ran=30.0), *once)
    (card,) = checked(text_of(view(UnitHistory(last_seen_at=0.0, starts=older)))).all("article")
    assert card.find("figcaption").text.startswith("starts of the last 24 hours: ")


def test_starts_of_a_day_that_are_no_longer_kept_are_a_gap_and_not_calm() -> None:
    starts = tuple(start(60.0 * (50 - index), Verdict.CLEAN, ran=10.0) for index in range(50))
    (card,) = checked(text_of(view(UnitHistory(last_seen_at=0.0, starts=starts)))).all("article")
    assert "the latest 50 are kept, since 23:10:00 UTC" in card.find("figcaption").text
    assert drawn(card, "unkept") == [[0.0, 0.0, 95.486, 100.0]]  # 1 − 65 min / 24 h
    (card,) = checked(text_of(view(UnitHistory(last_seen_at=0.0, starts=starts[1:])))).all("article")
    assert drawn(card, "unkept") == []


def test_a_unit_without_recent_starts_has_no_chart_and_one_without_history_no_word() -> None:
    old = start(90_000, Verdict.CLEAN, ran=1.0)
    (card,) = checked(text_of(view(UnitHistory(last_seen_at=0.0, starts=(old,))))).all("article")
    assert "no start in the last 24 hours" in card.text
    assert card.all("svg") == []
    unrecorded = view(UnitHistory(last_seen_at=0.0))
    (card,) = checked(text_of(replace(unrecorded, history=History()))).all("article")
    assert "no start" not in card.text


def test_memory_of_holders_that_is_more_than_the_gpu_has_does_not_leave_the_bar() -> None:
    shared = gpu(memory=memory(60 * GIB), holders=Ok((held(10, 50 * GIB), held(11, 50 * GIB))))
    at = snapshot(
        gpus=[shared], processes=[process(10, in_service("a.service")), process(11)], units=[unit("a.service")]
    )
    host = host_view(at, History(), Config())
    (bar,) = checked(text_of(host)).all("svg", class_="bar")
    widths = [float((element.attributes["width"] or "").rstrip("%")) for element in bar.all("rect")]
    assert widths == [100, 62.5, 37.5]


def test_a_page_on_which_nothing_could_be_read_is_not_calm() -> None:
    failed = Failed(Cause.TIMEOUT, "it hangs")
    at = replace(snapshot(nvml=failed, shm=failed, engines=failed, host=failed), processes=failed, units=failed)
    host = host_view(at, History(), Config())
    page = checked(text_of(host))
    assert page.find(id="health").attributes["class"] == "bad"  # a driver that does not answer is a finding
    assert [element.text.split(":")[0] for element in page.find(id="untold").all("li")] == [
        "GPUs",
        "units",
        "processes",
        "shared memory",
        "engines",
        "the host's clock and memory",
    ]
    assert page.all(id="units") == page.all(id="gpus") == page.all(id="processes") == page.all(id="shared-memory") == []


def test_two_gpus_of_one_index_are_distinguished_and_not_linked() -> None:
    page = checked(text_of(written("one-gpu-lost")))
    lost = [element for element in page.find(id="health").all("li") if element.text.startswith("GPU ")]
    assert [element.text for element in lost] == ["GPU 1: lost – what to do", "GPU 2: lost – what to do"]
    assert [len(element.all("a")) for element in lost] == [2, 1]  # the driver calls another one GPU 2 by now
