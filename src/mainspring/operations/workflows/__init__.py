"""Workflows: create, change and read them and their runs."""
