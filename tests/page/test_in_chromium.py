"""The status page in a real browser: its look, its scripts, and its defences."""

import json
import re
from collections.abc import Iterator
from dataclasses import replace

import pytest
from tests.fakes.browser import Browser, Page
from tests.fakes.hostile_names import view_of
from tests.fakes.http_peers import until
from tests.fakes.needs import TOOLS, missing
from tests.fakes.status_page import handler, text_of, written
from tests.fakes.values import HOST

from llmhost.derive.host_view import HostView
from llmhost.model.reading import Ok
from llmhost.serve.http import HttpServer
from llmhost.serve.routes import Request, Response, html

HOSTS = ("incident", "engine-of-each-kind", "mig", "left-over-by-many", "settings-that-go-wrong")
ASK = "document.dispatchEvent(new Event('visibilitychange'))"  # as when the tab comes to the front
HEADLINE = "document.getElementById('headline').textContent"
OLD = "document.getElementById('old').hidden ? '' : document.getElementById('old').textContent"


class Site:
    """A server of one page that counts the requests."""

    def __init__(self) -> None:
        self.page = ""
        self.requests = 0
        self.broken: Response | None = None
        self._port = 0
        self.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._port}/"

    def start(self) -> None:
        self._server = HttpServer(f"127.0.0.1:{self._port}", {"/": self._answer}, max_connections=8)
        self._port = self._server.address[1]
        self._server.start()

    def stop(self) -> None:
        self._server.stop()

    def _answer(self, request: Request) -> Response:
        self.requests += 1
        return self.broken or handler(lambda: self.page)(request)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with Browser() as running:
        yield running


@pytest.fixture
def site() -> Iterator[Site]:
    served = Site()
    yield served
    served.stop()


@pytest.fixture(scope="module")
def views() -> dict[str, HostView]:
    return {name: written(name) for name in HOSTS}


AXE_RUN = """
axe.run(document, {resultTypes: ["violations"]}).then((told) => told.violations
  .filter((violation) => ["serious", "critical"].includes(violation.impact))
  .map(({id, nodes}) => id + ": " + nodes.map((node) => node.target.join(" ") + " " + node.failureSummary).join("; ")))
"""


def axe_source() -> str:
    found = sorted((TOOLS / "axe-core").glob("axe-*.min.js"))
    if not found:
        missing("axe-core (tests/setup/axe)")
    return found[-1].read_text(encoding="utf-8")


def grave_faults(page: Page, axe: str) -> list[str]:
    """Return the serious and critical violations of WCAG 2.2 A and AA; `axe` is the source of axe-core."""
    page.run(f"{axe}; 0")
    answer: list[str] = page.run(AXE_RUN)
    return answer


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_it_keeps_nobody_out(browser: Browser, site: Site, views: dict[str, HostView], dark: bool) -> None:
    axe = axe_source()
    with browser.page(width=390, dark=dark) as page:
        for name in ("incident", "left-over-by-many", "engine-of-each-kind"):
            site.page = text_of(views[name])
            page.open(site.url)
            page.run("for (const one of document.querySelectorAll('details')) one.open = true")
            assert grave_faults(page, axe) == [], name
        site.broken = html("", status=503)
        page.run(ASK)
        page.until(OLD)
        assert grave_faults(page, axe) == [], "old"


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_it_fits_the_window_and_is_as_light_as_the_reader_wants(
    browser: Browser, site: Site, views: dict[str, HostView], width: int, dark: bool
) -> None:
    with browser.page(width=width, dark=dark) as page:
        for name, view in views.items():
            site.page = text_of(view)
            page.open(site.url)
            page.run("for (const one of document.querySelectorAll('details')) one.open = true")
            assert page.run("document.documentElement.scrollWidth") <= width, name
            red, green, blue = ground(page)
            assert (red + green + blue < 3 * 64) is dark


def ground(page: Page) -> tuple[int, int, int]:
    red, green, blue = page.run("getComputedStyle(document.body).backgroundColor.match(/[0-9]+/g).map(Number)")
    return red, green, blue


def test_axe_finds_what_is_wrong(browser: Browser, site: Site, views: dict[str, HostView]) -> None:
    site.page = text_of(views["incident"]).replace('lang="en"', "").replace("<h2>Units</h2>", '<img src="x">')
    with browser.page() as page:
        page.open(site.url)
        assert [fault.split(":")[0] for fault in grave_faults(page, axe_source())] == ["html-has-lang", "image-alt"]


NAME = (
    "'\"><img src=//127.0.0.1:1/x onerror=document.title='taken'>\n"
    "</main><script>document.title='taken'</script>.service"
)


def test_a_hostile_name_does_no_harm(browser: Browser, site: Site) -> None:
    view = view_of(NAME, host=Ok(HOST))
    ((me, record),) = view.history.units.items()
    starts = tuple(replace(start, at=view.snapshot.at - 60) for start in record.starts)
    site.page = text_of(replace(view, history=replace(view.history, units={me: replace(record, starts=starts)})))
    with browser.page(width=390) as page:
        page.open(site.url)
        assert page.run("document.querySelector('article h3').textContent") == NAME.replace("\n", "?")
        page.run(ASK)
        until(lambda: site.requests > 1)
        page.until("document.getElementById('age').textContent.startsWith(', 0 s')")
        assert page.run("document.title").startswith("not healthy")
        assert page.run("document.querySelectorAll('img, script').length") == 1
        assert page.run("document.querySelectorAll('body > main > section').length") == 7
        assert page.run("document.documentElement.scrollWidth") <= 390
        assert page.complaints() == []


def test_what_would_get_into_the_page_all_the_same_could_do_nothing(
    browser: Browser, site: Site, views: dict[str, HostView]
) -> None:
    taken = "document.documentElement.dataset.taken = 1"
    evil = (
        f"<script>{taken}</script><p onclick='{taken}' id='evil' style='position: fixed'>x</p>"
        f"<img src='//127.0.0.1:1/' onerror='{taken}'><iframe src='/'></iframe><link rel='stylesheet' href='/x.css'>"
        f"<style>#headline {{ display: none }}</style><form action='/' id='form'></form>"
    )
    site.page = text_of(views["incident"]).replace("<main", f"{evil}<main")
    with browser.page() as page:
        page.open(site.url)
        page.run("document.getElementById('evil').click(); document.getElementById('form').submit()")
        assert page.run("document.documentElement.dataset.taken") is None
        assert page.run("getComputedStyle(document.getElementById('evil')).position") == "static"
        assert page.run("getComputedStyle(document.getElementById('headline')).display") != "none"
        refused = " ".join(page.complaints())
        for directive in ("script-src", "style-src", "form-action", "default-src"):
            assert re.search(f"directive:? [\"']{directive} ", refused), refused
        page.run(f"fetch('http://127.0.0.1:1/').catch(() => {{ {taken}.away }})".replace("= 1.away", "= 'refused'"))
        page.until("document.documentElement.dataset.taken === 'refused'")
        assert "violates the document's Content Security Policy" in " ".join(page.complaints())


def test_without_scripts_all_is_there_and_can_be_asked_for_again(
    browser: Browser, site: Site, views: dict[str, HostView]
) -> None:
    site.page = text_of(views["incident"])
    with browser.page(scripts=False) as page:
        page.open(site.url)
        assert page.run(HEADLINE) == "not healthy"
        assert page.run("document.getElementById('freshness').innerText") == (
            "as of 00:00:00 UTC, and does not change by itself: reload"
        )
        assert page.run("document.querySelector('#freshness a').href") == site.url
        page.run("document.querySelector('summary').click()")
        assert page.run("document.querySelector('details').open && document.querySelector('details li').innerText")
        assert page.complaints() == []
        site.page = text_of(views["engine-of-each-kind"])
        page.run("document.querySelector('#freshness a').click()")
        page.event("Page.loadEventFired")
        assert page.run(HEADLINE) == "healthy"


def test_it_asks_again_by_itself_but_not_while_it_is_hidden(
    browser: Browser, site: Site, views: dict[str, HostView]
) -> None:
    site.page = text_of(views["incident"])
    with browser.page() as page:
        page.open(site.url)
        site.page = text_of(views["engine-of-each-kind"])
        page.until(f"{HEADLINE} === 'healthy'")
        assert page.run("document.title") == "healthy – gpu-host-1 – llmhost"
        assert page.run("document.getElementById('age').textContent").startswith(", ")
        page.run(f"Object.defineProperty(document, 'hidden', {{value: true, configurable: true}}); {ASK}")
        requests = site.requests
        page.tell("Emulation.setVirtualTimePolicy", policy="advance", budget=60_000)
        page.event("Emulation.virtualTimeBudgetExpired")
        assert site.requests == requests
        page.run(f"delete document.hidden; {ASK}")
        until(lambda: site.requests > requests)


def test_a_file_in_use_stays_where_it_is(browser: Browser, site: Site, views: dict[str, HostView]) -> None:
    site.page = text_of(views["incident"])
    with browser.page(width=390, height=600) as page:
        page.open(site.url)
        page.run("document.querySelector('#settings details').open = true")
        page.run("document.querySelectorAll('#settings summary')[1].focus({preventScroll: true})")
        page.run("scrollTo(0, document.getElementById('gpus').offsetTop - 10)")
        top = "Math.round(document.getElementById('gpus').getBoundingClientRect().top)"
        assert page.run(top) == 10
        opened = "[...document.querySelectorAll('details')].map((one) => one.open)"
        assert page.run(opened) == [False, True, False, False]
        # the same, with more above what is looked at
        site.page = site.page.replace("<h2>Units</h2>", "<h2>Units</h2>" + "<p>more</p>" * 20)
        page.run(ASK)
        page.until("document.querySelector('#units > p') !== null")
        assert page.run(top) == 10
        assert page.run(opened) == [False, True, False, False]
        assert page.run("[...document.querySelectorAll('#settings summary')].indexOf(document.activeElement)") == 1
        site.page = text_of(views["incident"])
        page.run(ASK)
        page.until("document.querySelector('#units > p') === null")
        assert page.run(top) == 10
        page.run("scrollTo(0, 0)")
        site.page = text_of(views["left-over-by-many"])
        page.run(ASK)
        page.until("document.querySelectorAll('#health li').length === 7")
        assert page.run("scrollY") == 0


def test_selected_text_stays_selected(browser: Browser, site: Site, views: dict[str, HostView]) -> None:
    site.page = text_of(views["incident"])
    with browser.page() as page:
        page.open(site.url)
        page.run("getSelection().selectAllChildren(document.querySelector('article h3'))")
        site.page = text_of(views["engine-of-each-kind"])
        until(lambda: page.run(ASK) or site.requests > 2)  # it asks again only when it has done with what it got
        assert page.run("String(getSelection())") == "vllm-744b.service"
        assert page.run(HEADLINE) == "not healthy"
        page.run("getSelection().removeAllRanges()")
        page.until(f"{HEADLINE} === 'healthy' || ({ASK}, false)")


def test_an_exporter_that_does_not_answer_leaves_no_calm_page(
    browser: Browser, site: Site, views: dict[str, HostView]
) -> None:
    site.page = text_of(views["engine-of-each-kind"])
    with browser.page() as page:
        page.open(site.url)
        assert page.run(HEADLINE) == "healthy"
        calm = ground_of_health(page)
        for broken, said in (
            (html("oops", status=500), "The exporter answers with an error, 500. What is below is old."),
            (html("<p>hello</p>"), "The exporter answers with another page. What is below is old."),
        ):
            site.broken = broken
            page.run(ASK)
            page.until(f"({OLD}) === {json.dumps(said)}")
        site.stop()
        page.run(ASK)
        page.until(f"({OLD}) === 'The exporter does not answer. What is below is old.'")
        assert page.run("document.title") == "OLD: healthy – gpu-host-1 – llmhost"
        assert page.run("getComputedStyle(document.getElementById('headline'), '::before').content") == '"was: "'
        assert ground_of_health(page) != calm
        site.broken = None
        site.start()
        page.run(ASK)
        page.until(f"({OLD}) === ''")
        assert page.run("document.title") == "healthy – gpu-host-1 – llmhost"
        assert ground_of_health(page) == calm


def ground_of_health(page: Page) -> str:
    answer: str = page.run("getComputedStyle(document.getElementById('health')).backgroundColor")
    return answer


def test_an_exporter_that_hangs_is_reported_once_the_page_is_old(
    browser: Browser, site: Site, views: dict[str, HostView]
) -> None:
    site.page = text_of(views["engine-of-each-kind"], age_seconds=19.0)
    with browser.page() as page:
        page.open(site.url)
        assert page.run(OLD) == ""
        page.until(f"({OLD}) === 'The exporter has not answered for a while. What is below is old.'")


def test_a_page_of_another_release_is_loaded_anew(browser: Browser, site: Site, views: dict[str, HostView]) -> None:
    site.page = text_of(views["incident"])
    with browser.page() as page:
        page.open(site.url)
        page.run("window.before = true")
        site.page = text_of(views["incident"]).replace('data-build="', 'data-build="x')
        page.run(ASK)
        page.event("Page.loadEventFired")
        assert page.run("window.before") is None
        assert page.run("document.documentElement.dataset.build").startswith("x")
