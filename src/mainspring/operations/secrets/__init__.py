"""Secrets: stored encrypted, and handed to the worker that holds a run which names them."""
