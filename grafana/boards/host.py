"""A host, or a few: units, who holds GPU memory, GPUs, what is left in shared memory, engines, the exporter."""

from grafana.boards import host_gpus, host_now, host_rest, shared
from grafana.kit.dashboard import Layout, dashboard, of_hosts, pages
from grafana.kit.panels import Json
from grafana.kit.queries import HOST


def _annotations() -> list[Json]:
    return [
        pages(HOST, text="{{instance}} {{unit}} {{gpu}}"),
        shared.xids(hosts=True),
    ]


def board() -> Json:
    layout = Layout()
    layout.line(4, *host_now.banner())
    layout.line(6, host_now.units_now())
    layout.line(6, host_now.units_timeline())
    alerts = shared.alerts_now(HOST, whose=("instance", "unit", "gpu"))
    layout.line(8, shared.holders_now(hosts=True), alerts, widths=(10, 14))
    layout.heading("GPU memory")
    layout.line(7, host_gpus.memory_of_a_gpu())
    layout.line(8, host_gpus.memory_that_nobody_holds(), host_gpus.need_and_free())
    layout.heading("GPUs")
    layout.line(8, host_gpus.gpus_over_time(), host_gpus.fabric(), host_gpus.xids())
    layout.line(9, *host_gpus.readings())
    layout.heading("Shared memory, and processes left over")
    layout.line(8, host_rest.files_now(), *host_rest.files_over_time(), widths=(12, 6, 6))
    layout.line(8, *host_rest.filling(), shared.stale_segments())
    layout.line(7, shared.trackers(), shared.orphans(), host_rest.oldest_orphan())
    layout.heading("Engines")
    layout.line(6, host_rest.engines_over_time())
    layout.line(9, *host_rest.engines())
    layout.heading("Exporter")
    layout.line(8, host_rest.collectors_over_time(), host_rest.exporters_now(), widths=(8, 16))
    layout.line(7, *host_rest.health())
    return dashboard(
        "llmhost-host",
        "llmhost / Host",
        "The LLM inference services of a host, its GPUs, and what is in the way of a start.",
        layout,
        variables=[*of_hosts(every=False), shared.gpus()],
        annotations=_annotations(),
    )
