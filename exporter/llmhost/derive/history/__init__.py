"""The algorithm of the history: how observations and unit events change it. Pure; its values are in model/history.

The history is a fold over two inputs, each handed in as it comes (collect/history_keeper):

- A unit event (`events.with_event`) says that a unit changed. It counts starts (`starts`), ends of runs, and time in
  each state, and gives back the steps to act on: a main process that has started is judged, a run that has ended has
  its memory release timed. Both outcomes are added later, by `changes.with_verdict` and the keeper.
- An observation (`observations.with_observation`) is a snapshot of all sources. It never makes a start. It carries on
  what takes more than one reading to know, a module for each: in which run a process was seen and since when it looks
  like an orphan (`processes`), by which unit a segment was held and since when by none (`segments`), on which GPUs a
  unit holds how much (`gpu_use`), and how long its engine took to answer (`readiness`).

`resume` goes on with the history of an earlier run of the exporter; `bounds` says how much is kept.
"""
