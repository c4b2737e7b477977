"""Backfills: create and control them, and create their runs."""
