"""Kinds of task: one package for each, with its request, checks, options and executor. registry.py finds them."""
