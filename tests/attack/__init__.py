"""Attacks by users, workers, servers and strangers. Each module names what it needs."""
