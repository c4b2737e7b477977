"""The output of runs: stored, merged, read and followed."""
