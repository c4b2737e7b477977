"""Workflows: the stored definition, its intake, the graph of its steps, and references between them."""
