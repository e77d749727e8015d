"""The incident board: one unit on one host, for the person who was paged."""

from grafana.boards.incident import summary
from grafana.kit.dashboard import Layout, annotation, dashboard, host_variables, pages, unit_variables
from grafana.kit.panels import (
    DASHED,
    STATE_VALUES,
    Json,
    colours,
    event_bars,
    repeated,
    state_timeline,
    target,
    timeseries,
)
from grafana.kit.queries import (
    BAD,
    BY_HOST,
    BY_UNIT,
    GUARD_VERDICTS,
    HOST,
    KINDS,
    RESULTS,
    UNIT,
    VERDICTS,
    counted,
    events,
    memory_by_kind,
    unit_state,
)

from grafana.boards import shared

STEP = "1m"  # at least a scrape interval, so that no event falls between two steps


def what_it_was_doing() -> Json:
    return state_timeline(
        "What the unit was doing",
        "At each step of the drawing: a scrape, or over a long time as long as a pixel. What is shorter can be missed, "
        "its starts below cannot. A gap: not known.",
        [target(unit_state(UNIT), summary.OF_UNIT)],
        STATE_VALUES,
    )


def starts() -> Json:
    return event_bars(
        "Starts by what they found",
        "Each start attempt when its verdict is known. `resident`: memory that should not be there was on the unit's "
        "GPUs. `not_started`: it ended before its main process, as when the guard refuses.",
        [target(events("llmhost_unit_starts_total", UNIT, "verdict"), "{{verdict}}", step=STEP)],
        overrides=colours(VERDICTS),
    )


def failures() -> Json:
    by_result = events("llmhost_unit_failures_total", UNIT, "result")
    lately = counted("llmhost_unit_failures_total", UNIT, "result", "$__range")
    return event_bars(
        "Failures by result",
        "Runs, and attempts at one, that ended in another result than success, as systemd names it; and runs that "
        "ended with success though nobody asked for it.",
        [
            # Without this condition each result that never occurred would be a series of zeros.
            target(f"{by_result} and on (result) ({lately} > 0)", "{{result}}", step=STEP),
            target(
                events("llmhost_unit_unexpected_stops_total", UNIT, "unit"),
                "ended unasked, success",
                ref="B",
                step=STEP,
            ),
        ],
        overrides=colours(RESULTS),
    )


def memory() -> Json:
    return timeseries(
        "GPU memory of the host by kind of holder",
        "All GPUs together, and below each by itself. Dashed: what a start of the unit asks to be free, over its "
        "GPUs. The upper line: all there is. Where what is not `current` leaves less than the dashed line, a start is "
        "refused or fails.",
        [
            target(memory_by_kind(HOST, "job"), "{{kind}}"),
            target(f"sum by ({BY_UNIT}) (llmhost_unit_gpu_memory_needed_bytes{{{UNIT}}})", "{{unit}} needs", ref="B"),
            target(f"sum by ({BY_HOST}) (llmhost_gpu_memory_total_bytes{{{HOST}}})", "there is", ref="C"),
        ],
        unit="bytes",
        stacked=True,
        overrides=[
            *colours(KINDS),
            shared.line_over(" needs$", custom__lineStyle=dict(DASHED)),
            shared.line_over("^there is$"),
        ],
    )


def memory_of_a_gpu() -> Json:
    of_it = f'{HOST}, gpu=~"$gpu"'
    needed = f'max by (gpu) (llmhost_unit_gpu_memory_needed_bytes{{{UNIT}, gpu=~"$gpu"}})'
    made = timeseries(
        "GPU $gpu",
        "Who holds the memory of this GPU, by kind. Dashed: what a start of the unit asks to be free on it.",
        [target(memory_by_kind(of_it, "gpu"), "{{kind}}"), target(needed, "needed", ref="B")],
        unit="bytes",
        stacked=True,
        calcs=(),
        overrides=[*colours(KINDS), shared.line_over("^needed$", custom__lineStyle=dict(DASHED))],
    )
    return repeated(made, "gpu", 4)


def in_the_way() -> Json:
    return timeseries(
        "In the way of the last start",
        "What the last judged start found on the unit's GPUs that was not its own, by kind; until the next such start.",
        [target(f"sum by (kind) (llmhost_unit_last_start_in_the_way_bytes{{{UNIT}}})", "{{kind}}")],
        unit="bytes",
        stacked=True,
        overrides=colours(KINDS),
    )


def guard() -> list[Json]:
    return [
        timeseries(
            "How long the guard waited",
            "In its last run. No data: the unit has no guard, or it has not run in this boot.",
            [target(f"max by ({BY_UNIT}) (llmhost_guard_last_wait_seconds{{{UNIT}}})", summary.OF_UNIT)],
            unit="s",
        ),
        event_bars(
            "Runs of the guard by what it found",
            "`free`: the start could go on. `held`: memory was not free in time. `unknown`: the driver could not "
            "serve. `fault`: the guard itself failed.",
            [target(events("llmhost_guard_runs_total", UNIT, "verdict", from_0=True), "{{verdict}}", step=STEP)],
            overrides=colours(GUARD_VERDICTS),
        ),
    ]


def engine() -> list[Json]:
    def rate(tokens: str) -> str:
        return f"sum by (unit, model) (rate(llmhost_engine_{tokens}_tokens_total{{{UNIT}}}[$__rate_interval]))"

    return [
        timeseries(
            "Tokens",
            "Generated, and read from prompts, as the unit's engines count them. A gap: no engine answers.",
            [
                target(rate("generation"), "{{model}} generated"),
                target(rate("prompt"), "{{model}} prompt", ref="B"),
            ],
            unit="suffix: tok/s",
        ),
        timeseries(
            "Requests",
            "What the unit's engines work on, and what waits. A gap: no engine answers.",
            [
                target(f"sum by (unit, model) (llmhost_engine_requests_running{{{UNIT}}})", "{{model}} running"),
                target(
                    f"sum by (unit, model) (llmhost_engine_requests_waiting{{{UNIT}}})", "{{model}} waiting", ref="B"
                ),
            ],
        ),
    ]


def annotations() -> list[Json]:
    def moments(name: str, colour: str, metric: str, *, title: str) -> Json:
        moment = f"max by (unit) ({metric}{{{UNIT}}}) * 1000"
        return annotation(name, colour, moment, title=title, text="{{unit}}", at_value=True)

    return [
        pages(f'{HOST}, unit=~"$unit|"', text="{{unit}} {{gpu}}"),
        moments("Starts", "blue", "llmhost_unit_last_start_timestamp_seconds", title="start"),
        moments(
            "Starts that found memory held",
            BAD,
            "llmhost_unit_last_resident_start_timestamp_seconds",
            title="start, memory held",
        ),
        shared.xids(),
    ]


def board() -> Json:
    layout = Layout()
    layout.line(4, *summary.banner())
    layout.line(
        12,
        shared.holders(),
        shared.firing_alerts(f'{HOST}, unit=~"$unit|"', labels=("gpu",)),  # alerts about the host have no unit
        summary.what_to_do(),
        widths=(8, 9, 7),
    )
    layout.line(4, what_it_was_doing())
    layout.line(6, starts())
    layout.line(6, failures())
    layout.line(8, memory())
    layout.line(7, memory_of_a_gpu())
    layout.line(7, in_the_way(), *engine())
    layout.line(7, *guard(), shared.orphans())
    layout.line(7, shared.stale_segments(), shared.trackers())
    return dashboard(
        "llmhost-incident",
        "llmhost / Incident",
        "One unit on one host: what it is doing, what holds its GPUs, since when, and what to do.",
        layout,
        variables=[*host_variables(every=False), *unit_variables(every=False), shared.gpu_variable()],
        annotations=annotations(),
    )
