"""One run of `llmhost guard`. What it decides is in decide/guard; this package reads, waits and acts.

`run` is the way in, from `cli/guard`: it finds the unit, makes the parts and records the end. `loop` is the wait: read
(`readings`), step (decide/guard/machine), act. `inputs` reads config and history first; `remedies` carries out --reap
and --clean-shm in a thread of its own. `first_moment` comes before all imports: `ending_signals` notes what would end
the guard. `admitting` reads and records what guards let start; `refusing` finds the exit code that refuses a start.
"""
