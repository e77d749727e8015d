"""The host board's GPUs and their memory."""

from grafana.boards.shared import line_over
from grafana.kit.causes import OF_GPUS, OK_OR_CAUSE, ok_or_cause
from grafana.kit.panels import (
    DASHED,
    Json,
    colours,
    link,
    override,
    repeated,
    state_timeline,
    table,
    target,
    timeseries,
    value_mappings,
)
from grafana.kit.queries import BAD, BY_HOST, BY_UNIT, GOOD, HOST, KINDS, memory_by_kind

_BY_GPU = f"{BY_HOST}, gpu, uuid"
_OF_A_GPU = "{{instance}} GPU {{gpu}}"
_XIDS = "https://docs.nvidia.com/deploy/xid-errors/analyzing-xid-catalog.html"


def memory_of_a_gpu() -> Json:
    of_it = f'{HOST}, gpu=~"$gpu"'
    made = timeseries(
        "GPU $gpu",
        "Memory of the GPU of this number by kind of holder, over the hosts that are chosen; the line is all there "
        "is. A gap: it, or the processes, cannot be read.",
        [
            target(memory_by_kind(of_it, "gpu"), "{{kind}}"),
            target(f"sum by (gpu) (llmhost_gpu_memory_total_bytes{{{of_it}}})", "there is", ref="B"),
        ],
        unit="bytes",
        stacked=True,
        calcs=(),
        overrides=[
            *colours(KINDS),
            line_over("^there is$"),
        ],
    )
    return repeated(made, "gpu", 4)


def unattributed_memory() -> Json:
    return timeseries(
        "Memory that nobody holds",
        "What is in use of each GPU less what all processes hold that are seen. Above the dashed line, "
        "policy.resident, it is in the way of a start. A gap: GPUs or processes cannot be read, or memory is unified.",
        [
            target(f"sum by ({_BY_GPU}) (llmhost_gpu_unattributed_memory_bytes{{{HOST}}})", _OF_A_GPU),
            target(f"max(llmhost_policy_resident_bytes{{{HOST}}})", "policy.resident", ref="B"),
        ],
        unit="bytes",
        calcs=(),
        overrides=[line_over("^policy.resident$", custom__lineStyle=dict(DASHED))],
    )


def need_and_free() -> Json:
    needed = f"llmhost_unit_gpu_memory_needed_bytes{{{HOST}}}"
    free = (
        f"min by ({BY_UNIT}) ({needed} ^ 0"
        f" * on ({BY_HOST}, uuid) group_left () llmhost_gpu_memory_free_bytes{{{HOST}}})"
    )
    return timeseries(
        "What units need, and what is free",
        "Dashed: what a start of the unit asks to be free on each GPU of its set. Solid: what the fullest GPU of its "
        "set has free. A unit that is down and whose solid line is the lower one is refused. One that is up has taken "
        "what it needs. A gap: what it needs, or where, is not known.",
        [
            target(f"max by ({BY_UNIT}) ({needed})", "{{instance}} {{unit}} needs", ref="A"),
            target(free, "{{instance}} {{unit}} finds free", ref="B"),
        ],
        unit="bytes",
        calcs=(),
        overrides=[override(" needs$", custom__lineStyle=dict(DASHED))],
    )


def gpus_over_time() -> Json:
    return state_timeline(
        "Whether GPUs answer",
        "For each GPU, and if it does not, why. A gap: the driver could not be read.",
        [target(ok_or_cause("llmhost_gpu_up", "llmhost_gpu_fault", HOST, _BY_GPU, OF_GPUS), _OF_A_GPU)],
        OK_OR_CAUSE,
    )


def fabric() -> Json:
    return state_timeline(
        "NVLink fabric",
        "Whether each GPU has registered with the fabric; CUDA programs fail to start where one has not. No data: "
        "there is no fabric, or the driver could not be read.",
        [target(f"min by ({_BY_GPU}) (llmhost_gpu_fabric_ready{{{HOST}}})", _OF_A_GPU)],
        value_mappings({1: ("ready", GOOD), 0: ("not ready", BAD)}),
    )


def xids() -> Json:
    return table(
        "XID errors",
        "What the driver has reported of GPUs since the exporter started: which error, when last, and how often. "
        "Empty: none, or the driver does not tell this exporter.",
        [
            ("last", f"max by ({_BY_GPU}, xid) (llmhost_gpu_last_xid_timestamp_seconds{{{HOST}}}) * 1000"),
            ("times", f"sum by ({_BY_GPU}, xid) (llmhost_gpu_xid_errors_total{{{HOST}}})"),
        ],
        shown=("instance", "gpu", "xid"),
        names={"gpu": "GPU", "xid": "XID"},
        overrides=[
            override("^instance$", custom__minWidth=100),
            override("^XID$", custom__width=60, links=[link("NVIDIA's catalogue of XIDs", _XIDS)]),
            override("^GPU$", custom__width=60),
            override("^times$", custom__width=65),
            override("^last$", unit="dateTimeFromNow", custom__width=120),
        ],
        sort=("last", True),
    )


def readings() -> list[Json]:
    def of_each(title: str, metric: str, description: str, unit: str) -> Json:
        expr = f"max by ({_BY_GPU}) ({metric}{{{HOST}}})"
        highest: Json = {"max": 1} if unit == "percentunit" else {}
        # Eight names of GPUs do not fit below; the tooltip has them.
        return timeseries(title, description, [target(expr, _OF_A_GPU)], unit=unit, legend=False, **highest)

    return [
        of_each(
            "Utilization",
            "llmhost_gpu_utilization_ratio",
            "Share of time in which a kernel ran. A gap: the driver does not tell it, as of MIG instances.",
            "percentunit",
        ),
        of_each(
            "Temperature",
            "llmhost_gpu_temperature_celsius",
            "Of each GPU. A gap: the driver does not tell it.",
            "celsius",
        ),
        of_each(
            "Power",
            "llmhost_gpu_power_watts",
            "Draw of each GPU and its board. A gap: the driver does not tell it.",
            "watt",
        ),
    ]
