"""Waits: steps that wait without a slot, how they begin and what ends them."""
