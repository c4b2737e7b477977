"""Limits: which HELD runs are admitted, and when, and which gates of queues and tenants a claim passes."""
