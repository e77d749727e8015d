"""The guard's decisions. Pure.

- `decision`: free, held or unknown, by what was read last. `memory_stability` says whether memory stands still.
- `machine`: one step of a run, whose values are in `state`: when to read, what to say, and when the wait ends.
- `target`: the unit, and the limit of the wait. `holders`: who has the memory that is waited for, as `holder_summary`.
- `admissions`: what other guards have let start and is not in use yet; `admitting`: the steps for that.
- `refusal`: the exit code that refuses a start.
- `remedies`: which processes and segments --reap and --clean-shm may take.
- `drop_in`: the text that `guard --install` writes.
"""
