"""Clients for the HTTP API: requests, connections, retries, and waiting for a run."""
