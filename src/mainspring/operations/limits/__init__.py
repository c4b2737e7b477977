"""Limits: which HELD runs are admitted, and when."""
