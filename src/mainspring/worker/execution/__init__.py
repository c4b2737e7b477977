"""Slots and attempts: how runs start, time out, stop and end."""
