"""Workflows built in Python: steps, references to results, and batches."""
