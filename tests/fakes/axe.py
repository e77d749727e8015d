"""axe-core, as tests/setup/axe has fetched it: what of a page keeps people from using it (WCAG 2.2 A and AA)."""

from tests.fakes.browser import Page
from tests.fakes.needs import TOOLS, missing

_RUN = """
axe.run(document, {resultTypes: ["violations"]}).then((told) => told.violations
  .filter((one) => ["serious", "critical"].includes(one.impact))
  .map((one) => one.id + ": " + one.nodes.map((node) => node.target.join(" ") + " " + node.failureSummary).join("; ")))
"""


def source() -> str:
    found = sorted((TOOLS / "axe-core").glob("axe-*.min.js"))
    if not found:
        missing("axe-core (tests/setup/axe)")
    return found[-1].read_text(encoding="utf-8")


def grave_faults(page: Page, axe: str) -> list[str]:
    """Give what is serious or critical; `axe` is its source."""
    page.run(f"{axe}; 0")
    told: list[str] = page.run(_RUN)
    return told
