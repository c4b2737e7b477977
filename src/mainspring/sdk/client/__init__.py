"""Clients for the HTTP API: what to send, how to send it, how to wait for a run."""
