"""The place of a process by its cgroup path, whatever the path: users make cgroups, and choose their names."""

import re
import string

from hypothesis import example, given
from hypothesis import strategies as st

from llmhost.model.process import Home, Placement
from llmhost.sources.cgroup import NOWHERE, parse_cgroup, parse_cgroup_path

ID = "4f9cb2a3d2e14a0b8c7d6e5f4a3b2c1d0e9f8a7b6c5d4e3f2a1b0c9d8e7f6a5b"

NAMES = "/ // . .. 0:: : 1:name=systemd: _ @ .service .scope .slice user@1000.service user@² kubepods lxc.payload. a"

units = st.text(string.ascii_letters + string.digits + ":-_.\\", min_size=1, max_size=12).filter(
    lambda name: name not in {".", ".."} and not name.startswith("_")
)
slices = st.lists(units.map("{}.slice".format), max_size=3).map(lambda parts: "".join(f"/{part}" for part in parts))
services = st.one_of(units, st.tuples(units, units).map("@".join)).map("{}.service".format)
below = st.lists(
    st.one_of(
        st.text(st.characters(exclude_characters="/\n\0", codec="utf-8"), min_size=1, max_size=12),
        st.sampled_from(("system.slice", "vllm.service", "user@0.service", f"docker-{ID}.scope", f"docker/{ID}", "..")),
    ),
    max_size=4,
).map(lambda parts: "".join(f"/{part}" for part in parts if part != ".."))
anything = st.one_of(
    st.text(max_size=60),
    st.lists(
        st.sampled_from((*NAMES.split(), "\n", " (deleted)", f"docker-{ID}.scope", ID)),
        max_size=12,
    ).map("".join),
)


@given(anything)
@example("0::/user@٣.service/a.service")
def test_any_text_has_a_place_or_none(text: str) -> None:
    for placement in (parse_cgroup(text), parse_cgroup_path(text)):
        assert isinstance(placement.home, Home)
        assert (placement.unit is not None) == (placement.home is Home.SERVICE)
        assert (placement.scope is not None) == (placement.home is Home.SCOPE)
        assert not placement.container_id or placement.home is Home.CONTAINER
        assert not placement.cgroup or placement.home is Home.NONE
        for found in filter(None, (placement.unit, placement.scope)):
            assert re.fullmatch(r"[A-Za-z0-9:_.\\@-]+\.(service|scope)", found.name)
            assert re.fullmatch(r"system|user@[0-9]+", found.manager)


@given(slices, services, below)
def test_what_runs_below_a_service_is_that_services_whatever_it_calls_its_cgroups(
    above: str, service: str, inside: str
) -> None:
    found = parse_cgroup_path(f"{above}/{service}{inside}")
    if found.unit is not None and found.unit.manager == "system":
        assert found == Placement(Home.SERVICE, found.unit)
        assert found.unit.name == service
    else:  # a user's manager, below which its own units are
        assert re.fullmatch(r"user@\d+\.service", service)
    assert parse_cgroup_path(f"{above}/{service}{inside} (deleted)") == parse_cgroup_path(f"{above}/{service}{inside}")


@given(slices, st.integers(0, 1 << 32), slices, services, below)
def test_a_service_of_a_user_is_never_one_of_the_systems(
    above: str, uid: int, slices_of_user: str, service: str, inside: str
) -> None:
    found = parse_cgroup_path(f"{above}/user@{uid}.service{slices_of_user}/{service}{inside}")
    assert found.unit is not None
    assert (found.unit.name, found.unit.manager) == (service, f"user@{uid}")


@given(slices, below)
def test_only_what_systemd_spells_as_a_unit_is_one(above: str, inside: str) -> None:
    """A cgroup behind a name that is none of systemd's is a container's, or nobody's."""
    found = parse_cgroup_path(f"{above}/not a unit{inside}")
    assert found.home in {Home.CONTAINER, Home.NONE}


def test_a_path_from_outside_of_our_cgroup_namespace_is_nowhere() -> None:
    assert parse_cgroup_path("/../vllm.service") == NOWHERE
