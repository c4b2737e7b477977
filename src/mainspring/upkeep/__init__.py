"""Periodic maintenance: rescue, beats, deadlines, partitions and pruning. One class with `run_once()` for each."""
