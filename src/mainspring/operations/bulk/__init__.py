"""Verbs on many jobs, runs or dead letters: how many a filter matches, operations, and how these are performed."""
