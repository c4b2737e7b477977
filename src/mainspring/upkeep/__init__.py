"""Periodic work: rescue, deadlines, beats, partitions, pruning. One class for each duty, with `run_once()`."""
