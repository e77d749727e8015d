"""GPUs through NVML, in two processes.

A call into a sick driver can hang for minutes, in a state in which nothing but the end of the call ends it. So NVML
runs in a child process: a hang costs the GPUs' values, and the child can be killed and replaced.

    exporter process                                          child process (package `child`)

    source         one state, one question at a time
      child_process  ── question: one JSON line ──────────▶   worker ─▶ session ─▶ gpu_scan ─▶ driver ─▶ libnvidia-ml
      report         ◀── answer: one JSON line ───────────    worker        │
      known_gpus       (both in `wire`)                                     └────▶ events: a thread of its own
      suspects
                     ◀── shared memory: current_call ─────    driver, before each call
                     ◀── shared memory: xid_counters ─────    events, as they come

Both processes import `wire`, `codes`, `current_call` and `xid_counters`; the other modules here run in the exporter.
"""
