"""The clean-up plan of `llmhost clean`: what may be ended or removed, what is skipped and why. Pure.

`plan` makes it, from `processes` (what may be ended) and `segments` (what may be removed). `context` holds what the two
go by, `steps` the values of a plan and of its outcome. act/carry_out carries a plan out.
"""
