"""GPUs in `llmhost status`: a bar of memory by holder, and the holders. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from llmhost.derive.attribution import GpuAttribution, HolderGroup, HolderKind, grouped
from llmhost.derive.host_view import HostView
from llmhost.model.gpu import Gpu, GpuMemory, NvmlReport
from llmhost.model.ids import UnitId
from llmhost.model.reading import Failed, Ok, Reading
from llmhost.views.text import WIDTH, Line, Piece, Style, clean, columns, gib, padded, plain

_BAR = 20
_NARROW_BAR = 12
# Letter and style of each kind of holder; unattributed memory is "?".
_KINDS: Mapping[HolderKind, tuple[str, Style]] = {
    HolderKind.CURRENT: ("C", Style.GOOD_FILLED),
    HolderKind.LEFTOVER: ("L", Style.BAD_FILLED),
    HolderKind.ORPHAN: ("O", Style.BAD_FILLED),
    HolderKind.GONE: ("G", Style.BAD_FILLED),
    HolderKind.CONTAINER: ("K", Style.FILLED),
    HolderKind.SESSION: ("P", Style.FILLED),
    HolderKind.SYSTEM: ("S", Style.FILLED),
    HolderKind.OTHER: ("X", Style.FILLED),
}
_UNATTRIBUTED = ("?", Style.DOUBT_FILLED)
_NOTABLE_UNATTRIBUTED_BYTES = 16 << 20  # the driver has a little of its own
IN_THE_WAY = frozenset(kind for kind, (_, style) in _KINDS.items() if style is Style.BAD_FILLED)


def holder_groups(attribution: GpuAttribution) -> tuple[HolderGroup, ...]:
    """Sort the holders by kind and unit, largest first; unattributed memory last."""
    groups = list(grouped(attribution.holders))
    groups.sort(key=lambda group: (-(group.used_bytes or 0), str(group.kind), group.unit or UnitId(""), group.pids))
    unattributed = attribution.unattributed_bytes
    if isinstance(unattributed, Ok) and unattributed.value >= _NOTABLE_UNATTRIBUTED_BYTES:
        groups.append(HolderGroup(kind=None, unit=None, pids=(), used_bytes=unattributed.value))
    return tuple(groups)


def gpu_lines(view: HostView, width: int = WIDTH) -> Iterator[Line]:
    report = view.snapshot.nvml
    if not isinstance(report, Ok):
        return
    driver = f"  driver {report.value.driver_version}" if report.value.driver_version else ""
    yield (("GPUS", Style.HEADING), (f"{driver}  {', '.join(models_of(report.value))}", Style.PLAIN))
    if not report.value.gpus:
        yield plain("  none")
        return
    bar = _BAR if width >= WIDTH else _NARROW_BAR
    yield ((f"  {'':6}{'':{bar + 2}} {'used':>7} {'free':>7}{'  held (GiB)' if width >= WIDTH else ''}", Style.FAINT),)
    used: list[str] = []
    for gpu in report.value.gpus:
        yield from _gpu(gpu, view, used, width)
    if used:
        legend = ", ".join(f"{letter} {name}" for letter, name in _legend() if letter in used)
        yield ((f"  {legend}", Style.FAINT),)


def _legend() -> Iterator[tuple[str, str]]:
    for kind, (letter, _) in _KINDS.items():
        yield letter, kind
    yield _UNATTRIBUTED[0], "unattributed"


def models_of(report: NvmlReport) -> list[str]:
    return sorted({gpu.name for gpu in report.gpus if gpu.name and gpu.parent_uuid is None})


def attribution_of(gpu: Gpu, view: HostView) -> Reading[GpuAttribution] | None:
    found = view.facts.attribution
    return found.value.get(gpu.uuid) if isinstance(found, Ok) else found


def _gpu(gpu: Gpu, view: HostView, used: list[str], width: int) -> Iterator[Line]:
    wide = _BAR if width >= WIDTH else _NARROW_BAR
    attribution = attribution_of(gpu, view)
    index: Piece = (f"  {padded(gpu.index, 6)}", Style.PLAIN)
    notes: list[Line] = [((" " * 8, Style.PLAIN), note) for note in notes_of(gpu)]
    groups = holder_groups(attribution.value) if isinstance(attribution, Ok) else ()
    total = total_bytes(gpu, view)
    if gpu.fault is not None:
        yield (index, (fault_of(gpu), Style.BAD))
        yield from notes
        return
    beside = list(_held(groups))
    if isinstance(attribution, Failed) and isinstance(gpu.memory, Ok):
        beside.append((f"holders: {attribution.cause.words}", Style.DOUBT))
    if isinstance(gpu.memory, Ok) and total:
        memory = gpu.memory.value
        bar = _bar(groups, memory, total, used, wide)
        first = (
            index,
            ("[", Style.PLAIN),
            *bar,
            (f"] {gib(memory.used_bytes):>7} {gib(memory.free_bytes):>7}  ", Style.PLAIN),
        )
    elif gpu.unified_memory:
        free = gib(view.snapshot.host.value.memory_available_bytes) if isinstance(view.snapshot.host, Ok) else "-"
        first = (index, (f"{padded('memory of the host', wide + 2)} {'':>7} {free:>7}  ", Style.PLAIN))
    else:
        first = (index, (why_no_memory(gpu), Style.PLAIN))
    indent = " " * sum(columns(text) for text, _ in first)
    if any(columns(indent + text) > width for text, _ in beside):  # who holds what is worth a line of its own
        yield first
        indent = " " * 8
    else:
        yield (*first, *beside[:1])
        beside = beside[1:]
    for piece in beside:
        yield ((indent, Style.PLAIN), piece)
    yield from notes


def total_bytes(gpu: Gpu, view: HostView) -> int | None:
    if gpu.unified_memory and isinstance(view.snapshot.host, Ok):
        return view.snapshot.host.value.memory_total_bytes
    return gpu.memory.value.total_bytes if isinstance(gpu.memory, Ok) else None


def why_no_memory(gpu: Gpu) -> str:
    if isinstance(gpu.memory, Failed):
        detail = f" ({gpu.memory.detail})" if gpu.memory.detail else ""
        return f"memory cannot be read: {gpu.memory.cause.words}{detail}"
    return "split into MIG instances"


def fault_of(gpu: Gpu) -> str:
    cause = gpu.fault.words if gpu.fault is not None else ""
    return f"{cause}: {gpu.fault_detail}" if gpu.fault_detail else cause


def notes_of(gpu: Gpu) -> Iterator[Piece]:
    if gpu.fabric_ready is False:
        yield "its NVLink fabric is not ready", Style.BAD
    if gpu.xids:
        xids = ", ".join(f"{xid.number} ({xid.count}×)" for xid in gpu.xids)
        yield f"driver errors (XID): {xids}", Style.DOUBT


def _held(groups: Sequence[HolderGroup]) -> Iterator[Piece]:
    for group in groups:
        amount = "?" if group.used_bytes is None else gib(group.used_bytes)
        if group.kind is None:
            yield f"{amount} unattributed", Style.DOUBT
            continue
        more = f" +{more_pids(group)}" if more_pids(group) else ""
        style = Style.BAD if group.kind in IN_THE_WAY else Style.PLAIN
        yield clean(f"{amount} {group.kind} {name_of_group(group)}{more}"), style


def name_of_group(group: HolderGroup) -> str:
    """Name the unit of holders, or, without one, the first process."""
    return group.unit.name if group.unit is not None else f"pid {group.pids[0]}"


def more_pids(group: HolderGroup) -> int:
    """Count the processes that the name of the group leaves out."""
    return len(group.pids) - 1 if group.unit is None else 0


def _bar(
    groups: Sequence[HolderGroup], memory: GpuMemory, total: int, used: list[str], columns_wide: int
) -> tuple[Piece, ...]:
    """Draw each holder with at least one column, then other memory in use, then free memory."""
    pieces: list[Piece] = []
    remaining = filled = (
        min(columns_wide, -(-columns_wide * memory.used_bytes // total))
        if memory.used_bytes >= _NOTABLE_UNATTRIBUTED_BYTES
        else 0
    )
    for group in groups:
        letter, style = _UNATTRIBUTED if group.kind is None else _KINDS[group.kind]
        if letter not in used:
            used.append(letter)
        wide = min(remaining, max(1, round(columns_wide * (group.used_bytes or 0) / total)))
        pieces.append((letter * wide, style))
        remaining -= wide
    if remaining and pieces:
        text, style = pieces[0]
        pieces[0] = (text + text[:1] * remaining, style) if text else pieces[0]
    elif remaining:
        pieces.append(("#" * remaining, Style.FILLED))
    return (*pieces, ("." * (columns_wide - filled), Style.FAINT))
