"""GPUs on the status page: a bar of memory by holder, and the holders. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from llmhost.derive.attribution import HolderGroup, HolderKind
from llmhost.derive.host_view import HostView
from llmhost.model.gpu import Gpu
from llmhost.model.reading import Failed, Ok
from llmhost.views.page.markup import Markup, identity, isolated, styled, tag
from llmhost.views.status.gpus import (
    IN_THE_WAY,
    attribution_of,
    fault_of,
    holder_groups,
    models_of,
    more_pids,
    name_of_group,
    notes_of,
    total_bytes,
    why_no_memory,
)
from llmhost.views.text import Style, gib

# Each kind of holder, explained.
_KINDS: Mapping[HolderKind | None, str] = {
    HolderKind.CURRENT: "of a unit that runs",
    HolderKind.LEFTOVER: "of an ended run of a unit",
    HolderKind.ORPHAN: "of a process that has outlived what it belonged to",
    HolderKind.GONE: "of a process that is gone",
    HolderKind.CONTAINER: "of a container",
    HolderKind.SESSION: "of somebody's session",
    HolderKind.SYSTEM: "of the system",
    HolderKind.OTHER: "of another program",
    None: "held by nobody that can be seen",
}
_WHOLE = 100.0  # per cent


def gpus_section(view: HostView) -> Markup:
    report = view.snapshot.nvml
    if not isinstance(report, Ok):
        return Markup()
    about = [
        *models_of(report.value),
        *([f"driver {report.value.driver_version}"] if report.value.driver_version else []),
    ]
    kinds: set[HolderKind | None] = set()
    gpus = [_gpu(gpu, view, kinds) for gpu in report.value.gpus]
    legend = [
        tag("li", tag("span", class_=f"key {_class(kind)}", aria_hidden="true"), f"{_name(kind)}: {meaning}")
        for kind, meaning in _KINDS.items()
        if kind in kinds
    ]
    return tag(
        "section",
        tag("h2", "GPUs"),
        tag("p", isolated(", ".join(about)), class_="faint") if about else "",
        tag("ul", gpus, class_="gpus") if gpus else tag("p", "none"),
        tag("ul", legend, class_="legend", aria_label="Kinds of holders") if legend else "",
        id="gpus",
    )


def _name(kind: HolderKind | None) -> str:
    return "unattributed" if kind is None else str(kind)


def _class(kind: HolderKind | None) -> str:
    return f"kind-{_name(kind)}"


def _gpu(gpu: Gpu, view: HostView, kinds: set[HolderKind | None]) -> Markup:
    attribution = attribution_of(gpu, view)
    groups = holder_groups(attribution.value) if isinstance(attribution, Ok) and gpu.up else ()
    kinds.update(group.kind for group in groups)
    name = f"GPU {gpu.index}"
    held = [_held(group) for group in groups]
    if isinstance(attribution, Failed) and isinstance(gpu.memory, Ok) and gpu.up:
        why = attribution.cause.words
        held.append(styled("li", (f"who holds what cannot be told: {why}", Style.DOUBT)))
    return tag(
        "li",
        tag("p", tag("strong", name), _memory(gpu, view), class_="figures"),
        _bar(name, gpu, groups, view),
        tag("ul", held, class_="held") if held else "",
        [styled("p", note) for note in notes_of(gpu)],
        id=identity("gpu", gpu.uuid),
    )


def _memory(gpu: Gpu, view: HostView) -> Markup:
    if gpu.fault is not None:
        return styled("span", (fault_of(gpu), Style.BAD))
    if isinstance(gpu.memory, Ok):
        memory = gpu.memory.value
        free = tag("strong", f"{gib(memory.free_bytes)} GiB free")
        return tag("span", free, f" of {gib(memory.total_bytes)}, {gib(memory.used_bytes)} used")
    if gpu.unified_memory:
        host = view.snapshot.host
        free_bytes = f", {gib(host.value.memory_available_bytes)} GiB available" if isinstance(host, Ok) else ""
        return tag("span", f"has the memory of the host{free_bytes}")
    return styled("span", (why_no_memory(gpu), Style.DOUBT if isinstance(gpu.memory, Failed) else Style.PLAIN))


def _held(group: HolderGroup) -> Markup:
    key = tag("span", class_=f"key {_class(group.kind)}", aria_hidden="true")
    if group.kind is None:
        return tag("li", key, f"{_amount(group)} unattributed", class_="doubt")
    more = f" and {more_pids(group)} more" if more_pids(group) else ""
    bad = "bad" if group.kind in IN_THE_WAY else None
    return tag("li", key, f"{_amount(group)} {group.kind} ", isolated(name_of_group(group)), more, class_=bad)


def _amount(group: HolderGroup) -> str:
    return "an untold amount" if group.used_bytes is None else f"{gib(group.used_bytes)} GiB"


def _bar(name: str, gpu: Gpu, groups: Sequence[HolderGroup], view: HostView) -> Markup:
    total = total_bytes(gpu, view)
    if gpu.fault is not None or not isinstance(gpu.memory, Ok) or not total:
        return Markup()
    used = gpu.memory.value.used_bytes
    holders = ", ".join(_description(group) for group in groups) or "nobody is known to hold any"
    return tag(
        "svg",
        tag("rect", class_="free", width="100%", height="100%"),
        list(_rects(groups, used, total)),
        class_="bar",
        role="img",
        aria_label=f"{name}: {gib(used)} of {gib(total)} GiB used; {holders}",
    )


def _description(group: HolderGroup) -> str:
    return f"{_amount(group)} {_name(group.kind)}" + (f" {group.unit.name}" if group.unit is not None else "")


def _rects(groups: Sequence[HolderGroup], used: int, total: int) -> Iterator[Markup]:
    """Draw what is held, then what is in use beside it. Holders that share memory may have more than is in use."""
    at = 0.0
    for group in groups:
        wide = min(_WHOLE * (group.used_bytes or 0) / total, _WHOLE - at)
        if wide > 0:
            yield tag("rect", class_=_class(group.kind), x=f"{at:.3f}%", width=f"{wide:.3f}%", height="100%")
        at += wide
    beside = min(_WHOLE * used / total, _WHOLE) - at
    if beside > 0:
        yield tag("rect", class_="used", x=f"{at:.3f}%", width=f"{beside:.3f}%", height="100%")
