"""docs/metrics.md from the catalogue: `python -m llmhost.metrics.docs`."""

import sys

from llmhost.metrics.catalog import FAMILIES, Family, Section

_HEAD = """\
# Metrics

Generated from `exporter/llmhost/metrics/catalog/` by `make docs`; do not edit. Real pages of many kinds of host are
in `tests/hosts/*/expected/metrics.prom`.

Base units. What could not be read is absent, never 0, and `llmhost_collector_fault` or `llmhost_gpu_fault` says
why; so is what a device or driver does not have, such as the utilization of a MIG instance. Labels in *italics*
are enums: *all* values are always there (0 included), *sparse* are those that there are, *current* is one
series of value 1. There are no pids, command lines, users, container ids or host names in labels.

- `gpu` is NVML's index, informative; `uuid` is the identity, as NVML spells it. A MIG instance is a GPU of its
  own with an index like `0:3`; its parent then has no memory or holder series.
- `unit` is the full service name, "" where there is no unit; `manager` is `system`, or `user@1000` for a unit
  of that user's own service manager.
- `kind` of a holder: `gone` (NVML lists a pid that /proc does not have, or that another process has now),
  `system` (display server, MPS server, persistenced), `current` (of the unit's present activation), `leftover`
  (of an ended activation of the unit: in its cgroup, or seen in it before), `orphan`, `container`, `session` (a
  person's shell or another scope), `other` (also: in a unit whose state systemd does not tell us).
- `load_state` `stub`: a unit file that systemd has not loaded; the exporter never makes systemd load a unit.
- `state` of a segment: `live` (open or mapped somewhere), `unheld` (by nobody, not for
  policy.segment_grace yet), `stale` (for longer, at every observation; at the latest two grace times and a scrape
  after its last holder went), `unknown` (a process could not be inspected, or not all processes were
  inspected since the last holder went).
- On unified memory (GB10, Thor) GPUs have no memory series; total and free are then the host's MemTotal
  and MemAvailable (node_exporter has them).
- The history of a unit begins when the exporter first sees it, with all counters at 0, and outlives the exporter and
  the boot where there is a state directory. A start attempt is each that systemd makes an InvocationID for; one that
  the start limit refuses is none. Its `trigger` is `auto` where systemd scheduled it after the run before, else
  `manual` (a person, a script, the boot, another unit). Its `verdict` is what it found on the unit's GPUs as its main
  process started:
  - `resident`: on one of them more than policy.resident of what should not be there: memory of ended runs, of orphans,
    of processes that are gone, of nobody; and of sessions, containers and others, where they left too little.
  - `clean`: no more than that on any of them.
  - `unknown`: the driver did not answer in time, nobody saw the start, or sessions, containers and others hold that
    much and it is not known how much the unit needs.
  - `not_started`: the attempt ended before its main process.
- `llmhost_unit_gives_up` 0 is the bad value: systemd would restart the unit for ever.
- In llmhost_unit_state_seconds_total `auto_restart` and `start_pre` are ours; llmhost_unit_sub_state has systemd's own
  spelling, `auto-restart` and `start-pre`.
- `cause` of the last failure is `unknown`: causes are not read yet.
- What was in a start's way is told of `clean` starts too, where process lists were read for it: not where no more
  than policy.resident was in use, or where the unit's GPUs are not known. It says what was found, so that kinds which
  do not make a start `resident` are there as well. It stays until the next such start.
- `llmhost_unit_last_release_seconds` goes by memory in use alone. Where others on the same GPU gave memory back
  meanwhile it is too short, where they took some it is absent or too long.
- `gpu` of what was in a start's way is the index that the GPU has now.
- `process_*` and `python_info` are the Prometheus client library's.
"""


def _labels(family: Family) -> str:
    names = [f"`{name}`" for name in family.labels]
    if family.mode is not None:
        names[-1] = f"*{family.labels[-1]}* ({family.mode})"
    return ", ".join(names) or "–"


def markdown() -> str:
    parts = [_HEAD]
    for section in Section:
        parts.append(f"\n## {section.value}\n\n| metric | type | labels | meaning |\n|---|---|---|---|\n")
        parts.extend(
            f"| `{family.name}` | {family.kind} | {_labels(family)} | {family.help} |\n"
            for family in FAMILIES.values()
            if family.section is section
        )
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(markdown())
