"""Saved views of lists: a filter and columns with a name."""
