"""Series of the guard's runs, by unit. Pure."""

from llmhost.metrics import catalog
from llmhost.metrics.page import Page
from llmhost.metrics.view import PageView
from llmhost.model.guard_run import GuardVerdict
from llmhost.model.reading import Ok


def guard_series(view: PageView, page: Page) -> None:
    runs = view.host.snapshot.guard_runs
    for run in runs.value if isinstance(runs, Ok) else ():
        labels = {"unit": run.unit.name, "manager": run.unit.manager}
        page.add(catalog.GUARD_LAST_RUN, run.at, **labels)
        page.add(catalog.GUARD_LAST_WAIT, run.wait_seconds, **labels)
        page.add(catalog.GUARD_LAST_VERDICT, 1, **labels, verdict=run.verdict)
        for verdict in GuardVerdict:
            page.add(catalog.GUARD_RUNS, run.runs_total.get(verdict, 0), **labels, verdict=verdict)
