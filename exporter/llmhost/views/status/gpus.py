"""GPUs in `llmhost status`: a bar of memory by holder, and the holders. Pure."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from llmhost.derive.attribution import GpuAttribution, HolderKind
from llmhost.derive.host_view import HostView
from llmhost.model.gpu import Gpu, GpuMemory
from llmhost.model.ids import UnitId
from llmhost.model.reading import Failed, Ok, Reading
from llmhost.views.text import Line, Piece, Style, clean, gib, padded, plain

_BAR = 20
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
_UNATTRIBUTED_SHOWN = 16 << 20  # bytes; the driver has a little of its own


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The memory of all holders of one kind and unit on a GPU; None where the driver does not report it."""

    kind: HolderKind | None  # None: unattributed
    unit: UnitId | None
    pids: tuple[int, ...]
    used_bytes: int | None


def shares(attribution: GpuAttribution) -> tuple[Share, ...]:
    """Sum up by kind and unit, largest first; unattributed memory last."""
    found: dict[tuple[HolderKind, UnitId | None], list[tuple[int, int | None]]] = {}
    for holder in attribution.holders:
        found.setdefault((holder.kind, holder.unit), []).append((holder.pid, holder.used_bytes))
    together = [
        Share(
            kind=kind,
            unit=unit,
            pids=tuple(sorted(pid for pid, _ in held)),
            used_bytes=None if any(used is None for _, used in held) else sum(used or 0 for _, used in held),
        )
        for (kind, unit), held in found.items()
    ]
    together.sort(key=lambda share: (-(share.used_bytes or 0), str(share.kind), share.unit or UnitId(""), share.pids))
    unattributed = attribution.unattributed_bytes
    if isinstance(unattributed, Ok) and unattributed.value >= _UNATTRIBUTED_SHOWN:
        together.append(Share(kind=None, unit=None, pids=(), used_bytes=unattributed.value))
    return tuple(together)


def gpu_lines(view: HostView) -> Iterator[Line]:
    report = view.snapshot.nvml
    if not isinstance(report, Ok):
        return
    driver = f"  driver {report.value.driver_version}" if report.value.driver_version else ""
    names = sorted({gpu.name for gpu in report.value.gpus if gpu.name and gpu.parent_uuid is None})
    yield (("GPUS", Style.HEADING), (f"{driver}  {', '.join(names)}", Style.PLAIN))
    if not report.value.gpus:
        yield plain("  none")
        return
    yield ((f"  {'':6}{'':{_BAR + 2}} {'used':>7} {'free':>7}  held (GiB)", Style.FAINT),)
    used: list[str] = []
    for gpu in report.value.gpus:
        by_gpu = view.facts.attribution
        attribution = by_gpu.value.get(gpu.uuid) if isinstance(by_gpu, Ok) else by_gpu
        yield from _gpu(gpu, attribution, view, used)
    if used:
        legend = ", ".join(f"{letter} {name}" for letter, name in _legend() if letter in used)
        yield ((f"  {legend}", Style.FAINT),)


def _legend() -> Iterator[tuple[str, str]]:
    for kind, (letter, _) in _KINDS.items():
        yield letter, kind
    yield _UNATTRIBUTED[0], "unattributed"


def _gpu(gpu: Gpu, attribution: Reading[GpuAttribution] | None, view: HostView, used: list[str]) -> Iterator[Line]:
    index: Piece = (f"  {padded(gpu.index, 6)}", Style.PLAIN)
    notes: list[Line] = [((" " * 8, Style.PLAIN), note) for note in notes_of(gpu)]
    found = shares(attribution.value) if isinstance(attribution, Ok) else ()
    total = total_bytes(gpu, view)
    if gpu.fault is not None:
        detail = f": {gpu.fault_detail}" if gpu.fault_detail else ""
        yield (index, (f"{gpu.fault.words}{detail}", Style.BAD))
        yield from notes
        return
    beside = list(_held(found))
    if isinstance(attribution, Failed) and isinstance(gpu.memory, Ok):
        beside.append((f"holders: {attribution.cause.words}", Style.DOUBT))
    if isinstance(gpu.memory, Ok) and total:
        memory = gpu.memory.value
        bar = _bar(found, memory, total, used)
        first = (
            index,
            ("[", Style.PLAIN),
            *bar,
            (f"] {gib(memory.used_bytes):>7} {gib(memory.free_bytes):>7}  ", Style.PLAIN),
        )
    elif gpu.unified_memory:
        free = gib(view.snapshot.host.value.memory_available_bytes) if isinstance(view.snapshot.host, Ok) else "-"
        first = (index, (f"{padded('memory of the host', _BAR + 2)} {'':>7} {free:>7}  ", Style.PLAIN))
    else:
        first = (index, (why_no_memory(gpu), Style.PLAIN))
    yield (*first, *beside[:1])
    indent: Piece = (" " * (2 + 6 + _BAR + 2 + 16 + 2), Style.PLAIN)
    for piece in beside[1:]:
        yield (indent, piece)
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


def notes_of(gpu: Gpu) -> Iterator[Piece]:
    if gpu.fabric_ready is False:
        yield "its NVLink fabric is not ready", Style.BAD
    if gpu.xids:
        xids = ", ".join(f"{xid.number} ({xid.count}×)" for xid in gpu.xids)
        yield f"driver errors (XID): {xids}", Style.DOUBT


def _held(found: Sequence[Share]) -> Iterator[Piece]:
    for share in found:
        amount = "?" if share.used_bytes is None else gib(share.used_bytes)
        if share.kind is None:
            yield f"{amount} unattributed", Style.DOUBT
            continue
        _, style = _KINDS[share.kind]
        who = share.unit.name if share.unit is not None else f"pid {share.pids[0]}"
        more = f" +{len(share.pids) - 1}" if share.unit is None and len(share.pids) > 1 else ""
        yield clean(f"{amount} {share.kind} {who}{more}"), Style.BAD if style is Style.BAD_FILLED else Style.PLAIN


def _bar(found: Sequence[Share], memory: GpuMemory, total: int, used: list[str]) -> tuple[Piece, ...]:
    """Draw each holder with at least one column, then other memory in use, then free memory."""
    pieces: list[Piece] = []
    left = filled = min(_BAR, -(-_BAR * memory.used_bytes // total)) if memory.used_bytes >= _UNATTRIBUTED_SHOWN else 0
    for share in found:
        letter, style = _UNATTRIBUTED if share.kind is None else _KINDS[share.kind]
        if letter not in used:
            used.append(letter)
        wide = min(left, max(1, round(_BAR * (share.used_bytes or 0) / total)))
        pieces.append((letter * wide, style))
        left -= wide
    if left and pieces:
        text, style = pieces[0]
        pieces[0] = (text + text[:1] * left, style) if text else pieces[0]
    elif left:
        pieces.append(("#" * left, Style.FILLED))
    return (*pieces, ("." * (_BAR - filled), Style.FAINT))
