"""The only code that changes the host. Each function checks its object again before it touches it.

`carry_out` carries out a plan of `llmhost clean`. `ending` ends processes and `removing` removes segments, also for the
guard's remedies; `lease_program` is the child of `removing`. `drop_ins` writes and removes the guard's drop-in.
"""
