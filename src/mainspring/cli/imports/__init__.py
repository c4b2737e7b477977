"""Imports from other schedulers: each module reads one source and returns jobs of a file. Nothing is changed."""
