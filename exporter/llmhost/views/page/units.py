"""Units on the status page: state, details, and the starts of the last day. Pure."""

from collections.abc import Iterable

from llmhost.derive.facts import UnitFacts
from llmhost.derive.host_view import HostView
from llmhost.model.ids import UnitId
from llmhost.model.reading import Ok
from llmhost.views.page.markup import Markup, identity, isolated, styled, tag
from llmhost.views.page.starts import starts_of
from llmhost.views.status.units import details_of, name_of, state_of, why_none


def unit_key(unit: UnitId) -> str:
    return identity("unit", unit.manager, unit.name)


def units_section(view: HostView) -> Markup:
    if not isinstance(view.facts.units, Ok):
        return Markup()
    return tag(
        "section",
        tag("h2", "Units"),
        _cards(view.facts.units.value, view) if view.facts.units.value else tag("p", isolated(why_none(view))),
        id="units",
    )


def _cards(units: Iterable[UnitFacts], view: HostView) -> list[Markup]:
    return [_card(unit, view, unit_key(unit.unit.id)) for unit in units]


def _card(facts: UnitFacts, view: HostView, key: str) -> Markup:
    return tag(
        "article",
        tag("h3", isolated(name_of(facts.unit)), id=f"{key}-name"),
        tag("p", styled("span", state_of(facts, view)), class_="state"),
        tag("ul", [styled("li", line) for line in details_of(facts, view)], class_="told"),
        starts_of(facts, view, f"{key}-starts"),
        id=key,
        aria_labelledby=f"{key}-name",
    )
