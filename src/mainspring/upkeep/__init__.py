"""Duties that keep the house: rescue, beats, partitions, pruning. One class per duty, each with `run_once()`."""
