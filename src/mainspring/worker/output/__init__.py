"""Logs and progress of runs, on their way to a server."""
