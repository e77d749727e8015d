"""The host board: units, holders of GPU memory, GPUs, shared memory, engines and exporter of one or a few hosts."""

from grafana.boards.host import engines, exporter, gpus, leftovers, summary
from grafana.kit.dashboard import Layout, dashboard, host_variables, pages
from grafana.kit.panels import Json
from grafana.kit.queries import HOST

from grafana.boards import shared


def _annotations() -> list[Json]:
    return [
        pages(HOST, text="{{instance}} {{unit}} {{gpu}}"),
        shared.xids(hosts=True),
    ]


def board() -> Json:
    layout = Layout()
    layout.line(4, *summary.banner())
    layout.line(6, summary.units_now())
    layout.line(6, summary.units_timeline())
    alerts = shared.firing_alerts(HOST, labels=("instance", "unit", "gpu"))
    layout.line(8, shared.holders(hosts=True), alerts, widths=(10, 14))
    layout.heading("GPU memory")
    layout.line(7, gpus.memory_of_a_gpu())
    layout.line(8, gpus.unattributed_memory(), gpus.need_and_free())
    layout.heading("GPUs")
    layout.line(8, gpus.gpus_over_time(), gpus.fabric(), gpus.xids())
    layout.line(9, *gpus.readings())
    layout.heading("Shared memory, and processes left over")
    layout.line(8, leftovers.files_now(), *leftovers.files_over_time(), widths=(12, 6, 6))
    layout.line(8, *leftovers.filling(), shared.stale_segments())
    layout.line(7, shared.trackers(), shared.orphans(), leftovers.oldest_orphan())
    layout.heading("Engines")
    layout.line(6, engines.engines_over_time())
    layout.line(9, *engines.engines())
    layout.heading("Exporter")
    layout.line(8, exporter.collectors_over_time(), exporter.exporters_now(), widths=(8, 16))
    layout.line(7, *exporter.health())
    return dashboard(
        "llmhost-host",
        "llmhost / Host",
        "The LLM inference services of a host, its GPUs, and what is in the way of a start.",
        layout,
        variables=[*host_variables(every=False), shared.gpu_variable()],
        annotations=_annotations(),
    )
