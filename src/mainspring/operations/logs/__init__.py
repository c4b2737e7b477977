"""The output of runs: taken in, merged, read and followed."""
