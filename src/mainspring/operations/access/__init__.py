"""Tenants, tokens, callers and permissions."""
