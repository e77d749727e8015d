"""docs/metrics.md from the catalogue: `python -m llmhost.metrics.docs`."""

import sys

from llmhost.metrics.catalog import FAMILIES, Family, Section

_HEAD = """\
# Metrics

Generated from `exporter/llmhost/metrics/catalog/` by `make docs`; do not edit. Complete pages of many kinds of hosts
are in `tests/hosts/*/expected/metrics.prom`.

## Conventions

- Values are in base units.
- A value that cannot be read is absent, never 0. `llmhost_collector_fault` or `llmhost_gpu_fault` has the cause.
- A value that a device or driver does not have, such as the utilization of a MIG instance, is absent too.
- Labels in *italics* are enums. *all*: every value has a series, also at 0. *sparse*: only values that occur.
  *current*: one series with value 1.
- No label has pids, command lines, users, container ids or host names.

## Labels

- `gpu`: NVML's index, for people. `uuid`: the GPU's identity, as NVML spells it. A MIG instance is a GPU of its own
  with an index like `0:3`; its parent then has no memory or holder series.
- `unit`: the full service name, "" without a unit. `manager`: `system`, or `user@1000` for a unit of that user's own
  service manager.
- `kind` of a holder:
  - `current`: of the present activation of its unit.
  - `leftover`: of an ended activation of its unit; it is in the unit's cgroup, or was seen there before.
  - `orphan`: an engine process that outlived its parent.
  - `gone`: NVML lists a pid that /proc does not have, or that another process has now.
  - `container`: in a container. `session`: in a login session or another scope.
  - `system`: a display server, an MPS server, the persistence daemon.
  - `other`: any other, also in a unit whose state systemd does not report.
- `load_state` `stub`: a unit file that systemd has not loaded. The exporter never makes systemd load a unit.
- `state` of a segment:
  - `live`: a process has it open or mapped.
  - `unheld`: no process holds it, for less than policy.segment_grace so far.
  - `stale`: for longer, at every observation; at the latest two grace times and a scrape after its last holder ended.
  - `unknown`: a process could not be inspected, or not all processes have been inspected since the last holder ended.

## Notes

- On unified memory (GB10, Thor) GPUs have no memory series. Their total and free memory are the host's MemTotal and
  MemAvailable, which node_exporter exports.
- The history of a unit begins when the exporter first sees it, with all counters at 0. With a state directory it
  outlives the exporter and the boot.
- Every start attempt with an InvocationID counts; one that the start limit refuses has none. Its `trigger` is `auto`
  if systemd scheduled it after the run before by Restart=; `unit` if systemd made it for another unit (Upholds=,
  OnFailure=, OnSuccess=, a timer, path or socket, the restart of what it is part of); else `manual` (a person, a
  script, the boot).
- The `verdict` of a start is by what was on the unit's GPUs when its main process started:
  - `resident`: on one GPU, memory of ended runs, orphans, ended processes and unattributed memory exceed
    policy.resident. Memory of sessions, containers and others counts where it left too little.
  - `clean`: no GPU had more than that.
  - `unknown`: the driver did not answer in time, the start was not seen, or sessions, containers and others hold that
    much and the unit's needs are unknown.
  - `not_started`: the attempt ended before its main process.
- `llmhost_unit_gives_up` 0 is the bad value: systemd would restart the unit for ever.
- `llmhost_unit_state_seconds_total` spells `auto_restart` and `start_pre`; `llmhost_unit_sub_state` spells
  `auto-restart` and `start-pre`, as systemd does.
- `cause` of the last failure is `unknown`: causes are not read yet.
- `llmhost_unit_last_start_in_the_way_bytes` stays until the next start with verdict clean or resident, and also has
  kinds that do not make a start `resident`. A clean start has it only if process lists were read: not if at most
  policy.resident was in use, or if the unit's GPUs are unknown. Its `gpu` is the present index.
- `llmhost_unit_last_release_seconds` is measured by memory in use alone. It is too short if others on the same GPU
  freed memory meanwhile, and absent or too long if they allocated some.
- `process_*` and `python_info` are of the Prometheus client library.
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
